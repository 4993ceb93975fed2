// What the files of a comparison are called.
#pragma once

#include <cstddef>
#include <string>

namespace stp {

inline constexpr size_t kMostFiles = 26;

/// A, B, … of file 0, 1, …
inline std::string file_label(size_t file) { return {static_cast<char>('A' + file)}; }

}  // namespace stp
