// What fuzz targets hold against a reader.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "stp/base/error.h"

namespace stp {

/// Ends the process, for the fuzzer to keep `text`, unless `holds`.
inline void require(bool holds, const char* what, const std::string& text) {
  if (holds) return;
  std::fprintf(stderr, "violated: %s\n%s\n", what, text.c_str());
  std::abort();
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

}  // namespace stp
