// Fuzz target of the scenario reader. Whatever it accepts, written as run, is read again as the same, and
// bears no trailing text.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "overlap_pairs.h"
#include "require.h"
#include "scenario.h"

namespace {

using namespace stp;

// The scenario as run.
nlohmann::json read(const std::string& text) {
  const std::string& path = file_of(text);
  return is_pairs_scenario(path) ? read_pairs_scenario(path).as_run() : read_scenario(path).as_run();
}

}  // namespace

void stp::check(const std::string& text) {
  const nlohmann::json as_run = read(text);
  require(refuses([&] { read(text + "x"); }), "trailing text is refused", text);
  require(refuses([&] { read(text + "\n{}"); }), "a second value is refused", text);
  try {
    require(read(as_run.dump()) == as_run, "a scenario as run is read as the same", text);
  } catch (const InputError& error) {
    std::fprintf(stderr, "%s\n%s\n", error.what(), as_run.dump(1).c_str());
    require(false, "a scenario as run is accepted", text);
  }
}
