#include "stp/schedule/csv_cells.h"

#include <algorithm>
#include <charconv>

#include "stp/base/error.h"

namespace stp::csv {
namespace {

#define STP_CSV_WORD(name) #name
constexpr std::string_view kActionTypes[] = {STP_CSV_TYPES(STP_CSV_WORD)};
#undef STP_CSV_WORD
constexpr std::string_view kOverlap = "OVERLAP_F_B";
constexpr int kMaxStages = kMaxRanks * kMaxChunks;

std::string place_of(size_t rank, size_t column, std::string_view text) {
  std::string place = "line " + std::to_string(rank + 1) + " (rank " + std::to_string(rank) + ")";
  if (column > 0) place += ", cell " + std::to_string(column);
  constexpr size_t kLongest = 60;
  std::string shown(text.substr(0, kLongest));
  for (char& c : shown)
    if (c < ' ' || c > '~') c = '?';
  if (text.size() > kLongest) shown += "...";
  return shown.empty() ? place : place + ", " + shown;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class CellReader {
 public:
  CellReader(size_t rank, size_t column, std::string_view text) : rank_(rank), cell_{column, text, {}, 0} {}

  Cell read() {
    if (cell_.text.find('"') != std::string_view::npos) fail("is quoted", "write cells without quotes");
    const size_t outside = cell_.text[0] == '(' ? cell_.text.find(')') : 0;
    if (outside != std::string_view::npos &&
        cell_.text.find_first_of(";\t", outside) != std::string_view::npos)
      fail("has a semicolon or a tab between actions", "separate cells by commas");
    if (cell_.text[0] != '(') {
      cell_.leaves[cell_.size++] = leaf(cell_.text);
      return cell_;
    }
    const size_t close = cell_.text.find(')');
    if (close == std::string_view::npos) fail("lacks its closing bracket", "write (0F5;7I4)OVERLAP_F_B");
    std::string_view inside = cell_.text.substr(1, close - 1);
    if (inside.find('(') != std::string_view::npos)
      fail("nests one overlap in another",
           "overlap two plain actions, and let others follow in cells of their own");
    if (cell_.text.substr(close + 1) != kOverlap)
      fail("has brackets that are not followed by OVERLAP_F_B", "write (0F5;7I4)OVERLAP_F_B");
    const auto parts = std::count(inside.begin(), inside.end(), ';') + 1;
    if (parts != 2 || inside.empty())
      fail("overlaps " + counted(inside.empty() ? 0 : parts, "action") + ", and a braid has exactly two",
           parts == 1 ? "write the action without brackets"
                      : "overlap two, and let others follow in cells of their own");
    const size_t semicolon = inside.find(';');
    for (const std::string_view part : {inside.substr(0, semicolon), inside.substr(semicolon + 1)}) {
      const Leaf action = leaf(part);
      if (!is_compute(action.type))
        fail("overlaps " + to_string(action) + ", which computes nothing", "give it a cell of its own");
      cell_.leaves[cell_.size++] = action;
    }
    return cell_;
  }

 private:
  static constexpr const char* kHowTo = "write stage, F, I, W or B, microbatch, such as 0F3";

  [[noreturn]] void fail(const std::string& problem, const std::string& remedy) const {
    refuse(place_of(rank_, cell_), problem, remedy);
  }

  // Takes digits from the front of `rest`.
  int number(std::string_view& rest, const char* what, int limit) const {
    const auto length =
        static_cast<size_t>(std::find_if_not(rest.begin(), rest.end(), is_digit) - rest.begin());
    if (length == 0) fail("is not an action", kHowTo);
    int value = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + length, value);
    if (error != std::errc() || value >= limit)
      fail(std::string("has too large a ") + what, "use numbers below " + std::to_string(limit));
    rest.remove_prefix(length);
    return value;
  }

  [[nodiscard]] Leaf leaf(std::string_view rest) const {
    Leaf leaf;
    leaf.stage = number(rest, "stage", kMaxStages);
    const auto length =
        static_cast<size_t>(std::find_if_not(rest.begin(), rest.end(),
                                             [](char c) { return (c >= 'A' && c <= 'Z') || c == '_'; }) -
                            rest.begin());
    const std::string_view word = rest.substr(0, length);
    rest.remove_prefix(length);
    // Today's torch silently reads such a cell as a stage and B without microbatch.
    const bool old = word == "BW" || (word == "B" && rest.empty());
    if (old)
      fail(word == "BW" ? "has the letters BW" : "has no microbatch",
           "torch up to 2.5 wrote B for the input gradient and BW for the full backward: if the file is that "
           "old, "
           "turn B into I and then BW into B, else write the microbatch after the letter");
    const auto* const found = std::ranges::find(kActionTypes, word);
    if (found == std::end(kActionTypes)) fail("is not an action", kHowTo);
    leaf.type = static_cast<Type>(found - kActionTypes);
    if (has_microbatch(leaf.type)) {
      if (rest.empty()) fail("has no microbatch", kHowTo);
      leaf.microbatch = number(rest, "microbatch", kMaxMicrobatches);
    }
    if (!rest.empty()) fail("has extra text after its action " + to_string(leaf), "remove it");
    return leaf;
  }

  size_t rank_;
  Cell cell_;
};

}  // namespace

std::string to_string(const Leaf& leaf) {
  std::string text = std::to_string(leaf.stage);
  text += kActionTypes[static_cast<int>(leaf.type)];
  if (has_microbatch(leaf.type)) text += std::to_string(leaf.microbatch);
  return text;
}

std::string to_overlap(const Leaf& first, const Leaf& second) {
  return "(" + to_string(first) + ";" + to_string(second) + ")" + std::string(kOverlap);
}

std::string place_of(size_t rank) { return place_of(rank, 0, ""); }
std::string place_of(size_t rank, const Cell& cell) { return place_of(rank, cell.column, cell.text); }

void refuse(const std::string& place, const std::string& problem, const std::string& remedy) {
  throw InputError("", place, problem, remedy);
}

Sheet read_cells(std::string_view text) {
  Sheet sheet;
  std::string idle, communication;  // the places of the first of each
  while (!text.empty()) {
    const size_t rank = sheet.rows.size();
    if (rank == kMaxRanks)
      refuse(place_of(rank), "is one row too many", "use at most " + std::to_string(kMaxRanks));
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    Row& row = sheet.rows.emplace_back();
    for (size_t column = 1;; ++column) {
      const size_t comma = std::min(line.find(','), line.size());
      std::string_view cell = line.substr(0, comma);
      cell.remove_prefix(std::min(cell.find_first_not_of(" \t"), cell.size()));
      cell = cell.substr(0, cell.find_last_not_of(" \t") + 1);
      if (cell.empty()) {
        if (idle.empty()) idle = place_of(rank, column, "");
      } else {
        row.push_back(CellReader(rank, column, cell).read());
        if (communication.empty() && !is_compute(row.back().leaves[0].type))
          communication = place_of(rank, row.back());
      }
      if (comma == line.size()) break;
      line.remove_prefix(comma + 1);
    }
    const auto computes = [](const Cell& cell) { return is_compute(cell.leaves[0].type); };
    if (std::none_of(row.begin(), row.end(), computes))
      refuse(place_of(rank), "does nothing",
             "write a row per rank, in the order of ranks, and no other lines");
  }
  if (sheet.rows.empty()) refuse("", "has no rows", "write a row per rank");
  if (!communication.empty()) {
    sheet.form = CsvForm::compute_comms;
    if (!idle.empty())
      refuse(idle,
             "is empty, but " + communication + " makes this a compute_comms file, which has no idle cells",
             "remove the empty cells");
  }
  return sheet;
}

}  // namespace stp::csv
