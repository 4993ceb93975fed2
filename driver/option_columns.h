// The options by which the rows of a table differ, as columns.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "scenario.h"
#include "table.h"

namespace stp {

/// The columns of a table with the ranks of each axis (kAxes).
std::vector<std::string> axis_heads();
std::vector<std::string> axis_cells(const Strategy& strategy);

/// Collects the options of a table's rows: all fields of their configurations as run.
class OptionColumns {
 public:
  /// `shown` and `axes`: fields for which the table has columns of its own.
  explicit OptionColumns(std::set<std::string> shown, const std::vector<std::string>& axes = axis_heads())
      : shown_(std::move(shown)) {
    shown_.insert(axes.begin(), axes.end());
  }

  /// A row: a schedule of a configuration.
  void add(const Experiment& experiment, const ScheduleChoice& choice);

  /// The table with a column from position `at` on for each option that differs between rows, and the
  /// configurations' names, if they have any, as the first column. A value that is too long for a table is
  /// "#1", "#2" and so on, with its beginning below the table. `rows` has the rows that were added, or the
  /// first of them.
  [[nodiscard]] Table table(std::vector<std::string> head, std::vector<std::vector<std::string>> rows,
                            size_t at) const;

 private:
  std::set<std::string> shown_;
  std::vector<std::map<std::string, std::string>> options_;  // by row; of fields that it has
};

}  // namespace stp
