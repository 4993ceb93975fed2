// The cells of a CSV schedule (csv.h) and their positions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stp/schedule/csv.h"

namespace stp::csv {

/// Applies `use` to the name of each type, with commas between.
// clang-format off
#define STP_CSV_TYPES(use) \
  use(F), use(I), use(W), use(B), use(S), use(T), use(U), use(E), use(G), use(SEND_F), use(RECV_F), \
  use(SEND_B), use(RECV_B), use(WAIT_SEND_F), use(WAIT_SEND_B), use(UNSHARD), use(RESHARD), \
  use(REDUCE_GRAD), use(WAIT_REDUCE_GRAD)
// clang-format on

#define STP_CSV_TYPE(name) name
enum class Type : uint8_t { STP_CSV_TYPES(STP_CSV_TYPE) };
#undef STP_CSV_TYPE

constexpr bool is_compute(Type type) { return type <= Type::G; }
constexpr bool is_of_vocabulary(Type type) { return is_compute(type) && type >= Type::S; }
constexpr bool is_send(Type type) { return type == Type::SEND_F || type == Type::SEND_B; }
constexpr bool is_wait_send(Type type) { return type == Type::WAIT_SEND_F || type == Type::WAIT_SEND_B; }
constexpr bool is_backward_side(Type type) {
  return type == Type::SEND_B || type == Type::RECV_B || type == Type::WAIT_SEND_B;
}
constexpr bool has_microbatch(Type type) { return type < Type::UNSHARD; }

/// One action of the format: `3RECV_F7` is microbatch 7 received by stage 3.
struct Leaf {
  int stage = 0;
  Type type{};
  int microbatch = 0;
};
std::string to_string(const Leaf& leaf);

/// The braid `F0.5&I1.4` of stages 0 and 7 is `(0F5;7I4)OVERLAP_F_B`.
std::string to_overlap(const Leaf& first, const Leaf& second);

/// A cell that is not idle. `text` points into the input.
struct Cell {
  size_t column;          // from 1, also over idle cells
  std::string_view text;  // without blanks around it
  std::array<Leaf, 2> leaves;
  uint32_t size;
  [[nodiscard]] bool braided() const { return size == 2; }
};
using Row = std::vector<Cell>;

struct Sheet {
  std::vector<Row> rows;
  CsvForm form = CsvForm::compute_only;
};

/// Reads the cells one by one. `text` must outlive the sheet.
Sheet read_cells(std::string_view text);

/// The place of an error: "line 3 (rank 2), cell 7, 2B1", or only the line if there is no cell. Lines and
/// cells count from 1, as in editors and spreadsheets.
std::string place_of(size_t rank);
std::string place_of(size_t rank, const Cell& cell);

/// Throws InputError about `place`; the caller adds the file.
[[noreturn]] void refuse(const std::string& place, const std::string& problem, const std::string& remedy);

}  // namespace stp::csv
