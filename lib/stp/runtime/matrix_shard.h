// The part of a matrix of parameters that one rank holds, and how the parts of all are put together.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace stp {

/// A block of the matrix `name` of `all_rows` × `all_columns`; its values row by row.
struct MatrixShard {
  std::string name;
  int64_t all_rows, all_columns;
  int64_t first_row, rows, first_column, columns;
  std::span<const double> values;
};

/// Puts a shard at its place in its matrix.
void add(std::map<std::string, std::vector<double>>& whole, const MatrixShard& shard);

/// Shards as bytes for another process, one behind the other; values keep all their bits.
void append(std::string& bytes, const MatrixShard& shard);
/// add() of all that append() has put into `bytes`. BadFrame if they are none.
void add_all(std::map<std::string, std::vector<double>>& whole, const std::string& bytes);

}  // namespace stp
