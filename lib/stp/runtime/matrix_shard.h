// The part of a parameter matrix that one rank holds, and the assembly of full matrices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stp {

/// A block of the matrix `name` of `all_rows` × `all_columns`, with its values row by row.
struct MatrixShard {
  std::string name;
  int64_t all_rows, all_columns;
  int64_t first_row, rows, first_column, columns;
  std::vector<double> values;
};
/// Full matrices by name, row by row.
using Matrices = std::map<std::string, std::vector<double>>;

/// Copies `values`, the bytes of a shard's, to their place in the full matrix.
void add(Matrices& whole, const MatrixShard& shard, std::span<const std::byte> values);

/// Appends a shard with these values to `bytes` for another process, which adds all that `bytes` hold. Throws
/// std::runtime_error if they are no shards.
void append(std::string& bytes, const MatrixShard& shard, std::span<const std::byte> values);
void add_all(Matrices& whole, std::string_view bytes);

}  // namespace stp
