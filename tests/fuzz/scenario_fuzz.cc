// Fuzz target of the scenario reader. Whatever it accepts, written as run, is read again as the same, and
// bears no trailing text.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "overlap_pairs.h"
#include "require.h"
#include "scenario.h"

namespace {

using namespace stp;

// The reader takes files alone: one per process, written over by every input.
class File {
 public:
  File()
      : path_(std::filesystem::temp_directory_path() / ("stp-fuzz-" + std::to_string(getpid()) + ".json")) {}
  ~File() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // The scenario as run.
  nlohmann::json read(const std::string& text) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << text;
    if (is_pairs_scenario(path_)) return read_pairs_scenario(path_).as_run();
    return read_scenario(path_).as_run();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const File file;
  const std::string text(reinterpret_cast<const char*>(data), size);
  nlohmann::json as_run;
  try {
    as_run = file.read(text);
  } catch (const InputError&) {
    return 0;
  }
  require(refuses([&] { file.read(text + "x"); }), "trailing text is refused", text);
  require(refuses([&] { file.read(text + "\n{}"); }), "a second value is refused", text);
  try {
    require(file.read(as_run.dump()) == as_run, "a scenario as run is read as the same", text);
  } catch (const InputError& error) {
    std::fprintf(stderr, "%s\n%s\n", error.what(), as_run.dump(1).c_str());
    require(false, "a scenario as run is accepted", text);
  }
  return 0;
}
