// Schedules and CSV files for tests of both.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "stp/schedule/csv.h"
#include "stp/schedule/validate.h"
#include "support/refusal.h"
#include "support/schedules.h"

namespace stp {

inline constexpr CsvForm kForms[] = {CsvForm::compute_only, CsvForm::compute_comms,
                                     CsvForm::compute_comms_waits};

inline std::string refusal_of(const std::string& text) {
  return refusal([&] {
    const Schedule schedule = schedule_from_csv(text, "x.csv");
    try {
      validate(schedule, places_in_csv(text, schedule.placement));
    } catch (const InputError& error) {
      throw error.in_file("x.csv");
    }
  });
}

// F of all stages in the forward's order, then the backwards in theirs: valid on any placement.
inline Schedule in_stage_order(const Placement& placement, int microbatches) {
  Schedule schedule{"in stage order", placement, microbatches, {}};
  schedule.ranks.resize(placement.ranks());
  const auto add = [&](Pass pass, int stage, int microbatch) {
    schedule.ranks[placement.rank_of(stage)].emplace_back(
        Action{pass, static_cast<int16_t>(placement.chunk_of(stage)), microbatch});
  };
  for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
    for (int stage = 0; stage < placement.stages(); ++stage) add(Pass::F, stage, microbatch);
    for (int stage = placement.stages() - 1; stage >= 0; --stage) {
      const bool split = (stage + microbatch) % 2 == 0;
      add(split ? Pass::I : Pass::B, stage, microbatch);
      if (split) add(Pass::W, stage, microbatch);
    }
  }
  return schedule;
}

// A file as its cells.
using Grid = std::vector<std::vector<std::string>>;

inline Grid grid_of(const std::string& text) {
  Grid grid;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line.pop_back();  // CR
    auto& row = grid.emplace_back();
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) row.push_back(cell);
  }
  return grid;
}

inline std::string text_of(const Grid& grid) {
  std::string text;
  for (const auto& row : grid) {
    for (size_t i = 0; i < row.size(); ++i) text += (i > 0 ? "," : "") + row[i];
    text += "\r\n";
  }
  return text;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
inline bool is_send(const std::string& cell) { return contains(cell, "SEND_") && !contains(cell, "WAIT_"); }
inline bool is_receive(const std::string& cell) { return contains(cell, "RECV_"); }
inline bool is_reduce(const std::string& cell) { return contains(cell, "REDUCE"); }

// The actions of a cell, each as stage, type and microbatch.
struct Parts {
  std::string stage, type, microbatch;
};
inline std::vector<Parts> parts_of(std::string cell) {
  if (cell[0] == '(') cell = cell.substr(1, cell.find(')') - 1);
  std::vector<Parts> actions;
  std::istringstream leaves(cell);
  for (std::string leaf; std::getline(leaves, leaf, ';');) {
    const size_t letter = leaf.find_first_not_of("0123456789");
    const size_t digit = std::min(leaf.find_first_of("0123456789", letter), leaf.size());
    actions.push_back({leaf.substr(0, letter), leaf.substr(letter, digit - letter), leaf.substr(digit)});
  }
  return actions;
}

}  // namespace stp
