#include "stp/runtime/matrix_shard.h"

#include <algorithm>

#include "stp/processes/tcp.h"

namespace stp {

void add(std::map<std::string, std::vector<double>>& whole, const MatrixShard& shard) {
  auto& full = whole[shard.name];
  full.resize(static_cast<size_t>(shard.all_rows * shard.all_columns));
  for (int64_t row = 0; row < shard.rows; ++row)
    std::copy_n(shard.values.begin() + row * shard.columns, shard.columns,
                full.begin() + (shard.first_row + row) * shard.all_columns + shard.first_column);
}

void append(std::string& bytes, const MatrixShard& shard) {
  Frame fields;
  fields.add(shard.name);
  for (const int64_t number :
       {shard.all_rows, shard.all_columns, shard.first_row, shard.rows, shard.first_column, shard.columns})
    fields.add(number);
  fields.add(shard.values);
  bytes += fields.body();
}

void add_all(std::map<std::string, std::vector<double>>& whole, const std::string& bytes) {
  Frame fields(0, bytes);
  while (!fields.done()) {
    MatrixShard shard{fields.text(),   fields.number(), fields.number(), fields.number(),
                      fields.number(), fields.number(), fields.number(), {}};
    const std::vector<double> values = fields.values();
    const bool fits = shard.rows >= 0 && shard.columns >= 0 && shard.first_row >= 0 &&
                      shard.first_column >= 0 && shard.first_row + shard.rows <= shard.all_rows &&
                      shard.first_column + shard.columns <= shard.all_columns &&
                      static_cast<int64_t>(values.size()) == shard.rows * shard.columns;
    if (!fits) throw BadFrame("a shard of " + shard.name + " that does not fit");
    shard.values = values;
    add(whole, shard);
  }
}

}  // namespace stp
