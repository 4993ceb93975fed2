// The part of a matrix of parameters that one rank holds, and how the parts of all are put together.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace stp {

/// A block of the matrix `name` of `all_rows` × `all_columns`; its values row by row.
struct MatrixShard {
  std::string name;
  int64_t all_rows, all_columns;
  int64_t first_row, rows, first_column, columns;
  std::vector<double> values;
};
/// Whole matrices by name, row by row.
using Matrices = std::map<std::string, std::vector<double>>;

/// Puts a shard at its place in its matrix.
void add(Matrices& whole, const MatrixShard& shard);

/// Shards as bytes for another process; values keep all their bits.
std::string to_bytes(const std::vector<MatrixShard>& shards);
std::vector<MatrixShard> shards_from_bytes(const std::string& bytes);

}  // namespace stp
