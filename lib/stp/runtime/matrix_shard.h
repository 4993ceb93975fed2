// The part of a parameter matrix that one rank holds, and the assembly of full matrices.
#pragma once

#include <cstdint>
#include <map>
#include <string>
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

/// Copies a shard to its place in the full matrix.
void add(Matrices& whole, const MatrixShard& shard);

/// Converts shards to bytes for another process, and back, without loss.
std::string to_bytes(const std::vector<MatrixShard>& shards);
std::vector<MatrixShard> shards_from_bytes(const std::string& bytes);

}  // namespace stp
