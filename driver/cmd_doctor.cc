#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "commands.h"
#include "stp/backends/backends.h"
#include "stp/base/error.h"
#include "stp/device/self_check.h"
#include "table.h"

namespace stp {
namespace {

const char* word_of(Finding::State state) {
  return state == Finding::State::works        ? "works"
         : state == Finding::State::falls_back ? "falls back"
                                               : "MISSING";
}

// The self-checks of a backend that has its device and what it needs.
std::vector<Finding> checks(const BuiltIn& kind) {
  try {
    std::vector<Finding> found;
    for (const DType type : kind.types) {
      const auto backend = kind.make({.world_size = 1});
      for (Finding& each : self_check(*backend, type)) found.push_back(std::move(each));
    }
    return found;
  } catch (const std::exception& error) {
    return {{"self-check", Finding::State::missing, error.what()}};
  }
}

}  // namespace

bool doctor_command(const std::string& version) {
  utsname system{};
  uname(&system);
  std::printf("%s; %s %s, %u processors\n\n", version.c_str(), system.sysname, system.release,
              std::thread::hardware_concurrency());
  Table table({"backend", "what", "state", "detail"});
  bool usable = false;  // some backend besides the processors is complete, or there is none
  bool built = false;
  for (const BuiltIn& kind : built_in_backends()) {
    if (kind.emulates) continue;  // it has no kernels
    std::vector<Finding> found = kind.examine();
    const auto complete = [&] {
      return std::ranges::none_of(found,
                                  [](const Finding& each) { return each.state == Finding::State::missing; });
    };
    if (complete())
      for (Finding& each : checks(kind)) found.push_back(std::move(each));
    if (kind.ranks != 0) built = true, usable = usable || complete();
    for (const Finding& each : found) table.add({kind.name, each.what, word_of(each.state), each.detail});
  }
  std::fputs(table.text().c_str(), stdout);
  if (!built) std::printf("\nThis build has no CUDA backend: build where nvcc is found.\n");
  return usable || !built;
}

}  // namespace stp
