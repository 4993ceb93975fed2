#include "table.h"

#include <unistd.h>

#include <algorithm>

namespace stp {

namespace {

// The number of columns of `text` on a screen.
size_t columns_of(const std::string& text) {
  // UTF-8 continuation bytes take none.
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

void Table::omit_empty_columns() {
  for (size_t column = rows_[0].size(); column-- > 0;)
    if (std::all_of(rows_.begin() + 1, rows_.end(), [&](const auto& row) { return row[column] == "–"; }))
      for (auto& row : rows_) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
}

std::string Table::text() const {
  std::vector<size_t> widths;
  const auto is_heading = [&](const auto& row) { return row.size() == 1 && rows_[0].size() > 1; };
  for (const auto& row : rows_) {
    if (is_heading(row)) continue;
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns_of(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    if (is_heading(row)) {
      text += row[0] + "\n";
      continue;
    }
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - columns_of(row[i]), ' ');
      line += (i > 0 ? "  " : "") + (i == 0 ? row[i] + space : space + row[i]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string fixed(std::optional<double> number, int decimals) {
  if (!number) return "–";
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, *number);
  return text;
}

std::string share_text(std::optional<double> share, int decimals) {
  return share ? fixed(100 * *share, decimals) + " %" : "–";
}

std::string percent(std::optional<double> share, int decimals) {
  if (!share) return "–";
  char text[64];
  std::snprintf(text, sizeof text, "%+.*f %%", decimals, *share * 100);
  return text;
}

ProgressBar::ProgressBar(std::string label, size_t total)
    : label_(std::move(label)), total_(total), shown_(isatty(STDERR_FILENO) == 1) {
  if (shown_) std::fprintf(stderr, "\r%s: 0 of %zu", label_.c_str(), total_);
}

ProgressBar::~ProgressBar() {
  if (shown_) std::fprintf(stderr, "\r\033[K");
}

void ProgressBar::step() {
  ++done_;
  if (shown_) std::fprintf(stderr, "\r%s: %zu of %zu", label_.c_str(), done_, total_);
}

}  // namespace stp
