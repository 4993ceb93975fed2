// What fuzz targets hold against a reader; of each, its only header with definitions.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>

#include "stp/base/error.h"

namespace stp {

/// Ends the process, for the fuzzer to keep `text`, unless `holds`.
inline void require(bool holds, const char* what, const std::string& text) {
  if (holds) return;
  std::fprintf(stderr, "violated: %s\n%s\n", what, text.c_str());
  std::abort();
}

/// The path of a file with this content, for readers that take files alone. Each call writes over it.
inline const std::string& file_of(const std::string& text) {
  static const int memory = memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(memory);
  require(ftruncate(memory, 0) == 0 && pwrite(memory, text.data(), text.size(), 0) == std::ssize(text),
          "the input is written", text);
  return path;
}

/// Whether `read` refuses its input.
template <typename Read>
bool refuses(Read read) {
  try {
    read();
    return false;
  } catch (const InputError&) {
    return true;
  }
}

/// What a target holds of one input, which it may refuse by an InputError.
void check(const std::string& text);

}  // namespace stp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    stp::check(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const stp::InputError&) {
  }
  return 0;
}
