#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "commands.h"
#include "stp/backends/backends.h"
#include "stp/base/error.h"
#include "stp/version.h"
#include "table.h"

namespace stp {
namespace {

constexpr const char* kVersion = "stp " STP_VERSION " (" STP_GIT_REVISION ")";

const char* word_of(Finding::State state) {
  return state == Finding::State::works        ? "works"
         : state == Finding::State::falls_back ? "falls back"
         : state == Finding::State::missing    ? "MISSING"
                                               : "absent";
}

}  // namespace

bool doctor_command(const Arguments&) {
  utsname system{};
  uname(&system);
  std::printf("%s; %s %s, %u processors\n\n", kVersion, system.sysname, system.release,
              std::thread::hardware_concurrency());
  Table table({"backend", "what", "state", "ms", "detail"});
  bool works = true;   // all backends whose devices are here
  bool built = false;  // one besides the processors
  for (const BuiltIn& kind : built_in_backends()) {
    if (kind.emulates) continue;  // it has no kernels
    const std::vector<Finding> found = examine(kind, 0, kind.types);
    built = built || kind.ranks != 0;
    if (std::ranges::count(found, Finding::State::absent, &Finding::state) == 0)
      works &= lack_of(found).empty();
    for (const Finding& each : found)
      table.add({kind.name, each.what, word_of(each.state), shown("%.0f", 1e3 * each.seconds), each.detail});
  }
  std::fputs(table.text().c_str(), stdout);
  if (!built) std::printf("\nThis build has no CUDA backend: build where nvcc is found.\n");
  return works;
}

std::string version_text(const Arguments&) {
  std::string libraries;
  for (const BuiltIn& backend : built_in_backends()) {
    const std::string of_this = joined(backend.libraries, [](const auto& library) {
      return library.first + (library.second ? " built in" : " not built in");
    });
    if (!of_this.empty()) libraries += "\n" + backend.name + ": " + of_this;
  }
  return std::string(kVersion) + "\nevidence: simulated, emulated, measured, replayed\nbackends: " +
         joined(built_in_backends(), &BuiltIn::name) + libraries;
}

}  // namespace stp
