#include "stp/runtime/matrix_shard.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

namespace stp {
namespace {

// In bytes before a shard's name and values: the length of the name, and the numbers of the shard.
using Head = std::array<int64_t, 7>;

}  // namespace

void add(Matrices& whole, const MatrixShard& shard, std::span<const std::byte> values) {
  auto& full = whole[shard.name];
  full.resize(static_cast<size_t>(shard.all_rows * shard.all_columns));
  const size_t row_bytes = shard.columns * sizeof(double);
  for (int64_t row = 0; row < shard.rows; ++row)
    std::memcpy(full.data() + (shard.first_row + row) * shard.all_columns + shard.first_column,
                values.data() + row * row_bytes, row_bytes);
}

void append(std::string& bytes, const MatrixShard& shard, std::span<const std::byte> values) {
  const Head head{std::ssize(shard.name), shard.all_rows, shard.all_columns, shard.first_row, shard.rows,
                  shard.first_column,     shard.columns};
  bytes.append(reinterpret_cast<const char*>(head.data()), sizeof head);
  bytes += shard.name;
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size());
}

void add_all(Matrices& whole, std::string_view bytes) {
  const auto expect = [](bool holds) {
    if (!holds) throw std::runtime_error("another process sent something else than parts of matrices");
  };
  const auto take = [&](size_t count) {
    expect(count <= bytes.size());
    const std::string_view taken = bytes.substr(0, count);
    bytes.remove_prefix(count);
    return taken;
  };
  while (!bytes.empty()) {
    Head head{};
    std::memcpy(head.data(), take(sizeof head).data(), sizeof head);
    const auto [name, all_rows, all_columns, first_row, rows, first_column, columns] = head;
    expect(std::ranges::all_of(head, [](int64_t each) { return each >= 0 && each < int64_t{1} << 30; }) &&
           first_row + rows <= all_rows && first_column + columns <= all_columns);
    const MatrixShard shard{
        std::string(take(name)), all_rows, all_columns, first_row, rows, first_column, columns, {}};
    const auto values = std::as_bytes(std::span(take(rows * columns * sizeof(double))));
    add(whole, shard, values);
  }
}

}  // namespace stp
