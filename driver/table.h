// A plain text table with numbers aligned to the right, and formats of numbers.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stp/base/error.h"

namespace stp {

/// What text is printed to.
struct Screen {
  size_t width = 0;  // columns; 0: any (a pipe or file)
  bool colour = false;

  /// Of standard output: no colour in a pipe, with NO_COLOR set, or if TERM is "dumb".
  static Screen of_output();
};

/// `text` with ends of lines in place of spaces, so that no line has more than `width` columns (0: any) if
/// its words are no longer.
std::string wrapped(const std::string& text, size_t width = Screen::of_output().width);

class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// A line between the rows that does not affect column widths.
  void heading(std::string line) { rows_.push_back({std::move(line)}); }
  /// A line below the table.
  void note(const std::string& line) { notes_ += line + "\n"; }
  /// Leaves out columns without any value: all their cells are "–".
  void omit_empty_columns();
  /// Shows cells `value` of the column `title` in red.
  void highlight(std::string title, std::string value) { red_ = {std::move(title), std::move(value)}; }
  /// Columns of text are aligned left, others right. A table wider than the screen gets titles of several
  /// lines; if that is not enough, parts below each other, each with the rows' numbers and the first column
  /// (a wide one in the first part alone). A text in the last column has several lines.
  [[nodiscard]] std::string text(const Screen& screen = Screen::of_output()) const;

 private:
  struct Layout;
  /// The table with the rows' numbers as its first column.
  [[nodiscard]] Table numbered() const;
  [[nodiscard]] Layout layout(bool wrap_titles) const;
  void write_part(std::string& text, const Layout& layout, const std::vector<size_t>& columns,
                  const Screen& screen) const;
  [[nodiscard]] bool is_heading(const std::vector<std::string>& row) const {
    return row.size() == 1 && rows_[0].size() > 1;
  }

  std::vector<std::vector<std::string>>
      rows_;                                 // rows of one cell are headings, unless the table has one column
  std::pair<std::string, std::string> red_;  // title, value
  std::string notes_;
};

/// `number` with `decimals` decimals, without a minus if it is shown as zero; "–" for none.
std::string fixed(std::optional<double> number, int decimals);
/// GB, with a decimal if it is not whole: "80", "85.5".
std::string gb_text(double bytes);
/// A share in per cent: "12.5 %"; "–" for none.
std::string share_text(std::optional<double> share, int decimals = 1);
/// A difference in per cent, with its sign: "+12.5 %"; "0.0 %" if it is shown as zero.
std::string percent(std::optional<double> share, int decimals = 1);

/// Says on standard error, also in a pipe, what `count` pieces of work (`what`, plural) will cost, if that is
/// more than four seconds.
void say_cost(double count, const char* what, double bytes_each, double seconds_each);

}  // namespace stp
