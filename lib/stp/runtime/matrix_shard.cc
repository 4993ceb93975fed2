#include "stp/runtime/matrix_shard.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace stp {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MatrixShard, name, all_rows, all_columns, first_row, rows, first_column,
                                   columns, values)

void add(Matrices& whole, const MatrixShard& shard) {
  auto& full = whole[shard.name];
  full.resize(static_cast<size_t>(shard.all_rows * shard.all_columns));
  for (int64_t row = 0; row < shard.rows; ++row)
    std::copy_n(shard.values.begin() + row * shard.columns, shard.columns,
                full.begin() + (shard.first_row + row) * shard.all_columns + shard.first_column);
}

std::string to_bytes(const std::vector<MatrixShard>& shards) {
  std::string bytes;
  nlohmann::json::to_msgpack(shards, bytes);
  return bytes;
}

std::vector<MatrixShard> shards_from_bytes(const std::string& bytes) {
  return nlohmann::json::from_msgpack(bytes).get<std::vector<MatrixShard>>();
}

}  // namespace stp
