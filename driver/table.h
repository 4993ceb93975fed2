// A plain text table with numbers aligned to the right, and formats of numbers.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace stp {

class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// A line between the rows that does not affect column widths.
  void heading(std::string line) { rows_.push_back({std::move(line)}); }
  /// Leaves out columns without any value: all their cells are "–".
  void omit_empty_columns();
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::vector<std::string>>
      rows_;  // rows of one cell are headings, unless the table has one column
};

/// `number` with `decimals` decimals; "–" for none.
std::string fixed(std::optional<double> number, int decimals);
/// A share in per cent: "12.5 %"; "–" for none.
std::string share_text(std::optional<double> share, int decimals = 1);
/// A difference in per cent, with its sign.
std::string percent(std::optional<double> share, int decimals = 1);

/// Progress on a terminal's standard error, "label: 3 of 9"; silent in a pipe.
class ProgressBar {
 public:
  ProgressBar(std::string label, size_t total);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void step();

 private:
  std::string label_;
  size_t total_, done_ = 0;
  bool shown_;
};

}  // namespace stp
