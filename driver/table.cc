#include "table.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <sstream>

#include "stp/base/error.h"

namespace stp {

namespace {

// The number of columns of `text` on a screen.
size_t columns_of(const std::string& text) {
  // UTF-8 continuation bytes take none.
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

constexpr size_t kLeastOfText = 24;
constexpr const char* kNumber = "#";  // title of the rows' numbers

// "3.5 %" and "#2", but not "1f1b".
bool is_number(const std::string& cell) {
  const char* begin = cell.c_str() + (cell.starts_with('#') ? 1 : 0);
  char* end = nullptr;
  std::strtod(begin, &end);
  return cell == "–" || (end != begin && (*end == '\0' || *end == ' '));
}

// A text that begins in column `begin` of a screen: wrapped, its further lines below the first.
std::string below_each_other(const std::string& text, size_t begin, size_t width) {
  if (width < begin + kLeastOfText) return text;
  std::string indented;
  for (const char c : wrapped(text, width - begin))
    indented += c == '\n' ? "\n" + std::string(begin, ' ') : std::string(1, c);
  return indented;
}

}  // namespace

std::string wrapped(const std::string& text, size_t width) {
  if (width == 0) return text;
  std::string lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) {
    if (!lines.empty()) lines += "\n";
    const size_t begin = std::min(line.find_first_not_of(' '), line.size());
    const std::string indent(begin, ' ');
    lines += indent;
    size_t used = begin;
    std::istringstream words(line.substr(begin));
    for (std::string word; std::getline(words, word, ' ');) {
      const size_t more = columns_of(word);
      if (used == begin) {
        used += more;
      } else if (used + 1 + more <= width) {
        lines += " ";
        used += 1 + more;
      } else {
        lines += "\n" + indent;
        used = begin + more;
      }
      lines += word;
    }
  }
  return text.ends_with('\n') ? lines + "\n" : lines;
}

Screen Screen::of_output() {
  if (isatty(STDOUT_FILENO) != 1) return {};
  winsize size{};
  const char *none = std::getenv("NO_COLOR"), *term = std::getenv("TERM");
  const bool plain = (none != nullptr && *none != '\0') || (term != nullptr && std::string(term) == "dumb");
  return {ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : size_t{0}, !plain};
}

void Table::omit_empty_columns() {
  for (size_t column = rows_[0].size(); column-- > 0;)
    if (std::all_of(rows_.begin() + 1, rows_.end(), [&](const auto& row) { return row[column] == "–"; }))
      for (auto& row : rows_) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
}

struct Table::Layout {
  std::vector<std::vector<std::string>> titles;  // lines of each column's title
  std::vector<size_t> widths;
  std::vector<bool> left;  // aligned left
};

Table::Layout Table::layout(bool wrap_titles) const {
  Layout layout;
  for (const std::string& title : rows_[0]) {
    std::vector<std::string> lines{title};
    for (size_t space; wrap_titles && (space = lines.back().find(' ')) != std::string::npos;) {
      lines.push_back(lines.back().substr(space + 1));
      lines.end()[-2].resize(space);
    }
    layout.titles.push_back(std::move(lines));
  }
  for (size_t column = 0; column < rows_[0].size(); ++column) {
    size_t width = 0;
    bool text = true;
    for (const std::string& line : layout.titles[column]) width = std::max(width, columns_of(line));
    for (size_t i = 1; i < rows_.size(); ++i) {
      if (is_heading(rows_[i])) continue;
      width = std::max(width, columns_of(rows_[i][column]));
      text = text && !is_number(rows_[i][column]);
    }
    // A long text at the end of a row is wrapped, also one that begins with a number.
    const bool last = column + 1 == rows_[0].size();
    layout.widths.push_back(last && column > 0 ? std::min(width, kLeastOfText) : width);
    layout.left.push_back(column == 0 || text || (last && width > kLeastOfText));
  }
  return layout;
}

void Table::write_part(std::string& text, const Layout& layout, const std::vector<size_t>& columns,
                       const Screen& screen) const {
  const bool colour = screen.colour;
  const auto write_line = [&](const auto& cell_of, bool bold) {
    std::string line;
    size_t begin = 0;  // of the column on the screen
    for (const size_t column : columns) {
      std::string cell = cell_of(column);
      if (column == rows_[0].size() - 1 && layout.left[column])
        cell = below_each_other(cell, begin, screen.width);
      begin += layout.widths[column] + 2;
      const std::string space(std::max(layout.widths[column], columns_of(cell)) - columns_of(cell), ' ');
      const bool red = colour && !bold && rows_[0][column] == red_.first && cell == red_.second;
      const std::string shown = red ? "\033[31m" + cell + "\033[0m" : cell;
      line += (column == columns.front() ? "" : "  ") + (layout.left[column] ? shown + space : space + shown);
    }
    line.resize(line.find_last_not_of(' ') + 1);
    text += bold && colour ? "\033[1m" + line + "\033[0m\n" : line + "\n";
  };
  size_t lines = 0;
  for (const size_t column : columns) lines = std::max(lines, layout.titles[column].size());
  for (size_t i = lines; i-- > 0;)  // titles stand at the bottom
    write_line(
        [&](size_t column) {
          const auto& title = layout.titles[column];
          return i < title.size() ? title[title.size() - 1 - i] : std::string();
        },
        true);
  for (size_t i = 1; i < rows_.size(); ++i) {
    if (is_heading(rows_[i]))
      text += rows_[i][0] + "\n";
    else
      write_line([&](size_t column) { return rows_[i][column]; }, false);
  }
}

Table Table::numbered() const {
  Table table = *this;
  table.rows_[0].insert(table.rows_[0].begin(), kNumber);
  for (size_t i = 1, number = 0; i < rows_.size(); ++i)
    if (!is_heading(rows_[i])) table.rows_[i].insert(table.rows_[i].begin(), std::to_string(++number));
  return table;
}

std::string Table::text(const Screen& screen) const {
  const auto width_of = [](const Layout& layout) {
    return std::accumulate(layout.widths.begin(), layout.widths.end(), 2 * layout.widths.size()) - 2;
  };
  const bool wide = screen.width > 0 && width_of(layout(false)) > screen.width;
  const Layout shape = layout(wide);
  const bool numbers = rows_[0][0] == kNumber;
  const std::vector<size_t> first = numbers ? std::vector<size_t>{0, 1} : std::vector<size_t>{0};
  const size_t first_width = shape.widths[0] + (numbers ? 2 + shape.widths[1] : 0);
  const bool once = numbers && 2 * first_width > screen.width;  // long names in the first part alone
  std::vector<std::vector<size_t>> parts{first};
  size_t used = first_width;
  for (size_t column = first.size(); column < shape.widths.size(); ++column) {
    const size_t more = 2 + shape.widths[column];
    if (wide && used + more > screen.width && parts.back().size() > (once ? 1 : first.size())) {
      parts.push_back(once ? std::vector<size_t>{0} : first);
      used = once ? shape.widths[0] : first_width;
    }
    parts.back().push_back(column);
    used += more;
  }
  if (parts.size() > 1 && rows_[0][0] != kNumber) return numbered().text(screen);
  std::string text;
  for (const auto& part : parts) {
    if (!text.empty()) text += "\n";
    write_part(text, shape, part, screen);
  }
  return text + wrapped(notes_, screen.width);
}

std::string fixed(std::optional<double> number, int decimals) {
  if (!number) return "–";
  const std::string text = shown(("%." + std::to_string(decimals) + "f").c_str(), *number);
  return text.find_first_not_of("-0.") == std::string::npos && text[0] == '-' ? text.substr(1) : text;
}

std::string gb_text(double bytes) {
  const std::string text = fixed(bytes / 1e9, 1);
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

std::string share_text(std::optional<double> share, int decimals) {
  return share ? fixed(100 * *share, decimals) + " %" : "–";
}

std::string percent(std::optional<double> share, int decimals) {
  if (!share) return "–";
  const std::string text = shown(("%+." + std::to_string(decimals) + "f %%").c_str(), *share * 100);
  return text.find_first_not_of("+-0. %") == std::string::npos ? text.substr(1) : text;
}

void say_cost(double count, const char* what, double bytes_each, double seconds_each) {
  if (count * seconds_each <= 4) return;
  std::fprintf(stderr, "stp: %.0f million %s: expect about %.1f GB of memory and %.0f s\n", count / 1e6, what,
               count * bytes_each / 1e9, std::ceil(count * seconds_each));
}

}  // namespace stp
