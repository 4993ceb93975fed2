// Improves an order by local moves: simulated annealing over valid orders of a placement.
#pragma once

#include <cstdint>
#include <functional>

#include "stp/schedule/schedule.h"

namespace stp {

struct SearchRequest {
  uint64_t seed = 1;
  int64_t moves = 0;         // orders to time at most; the only limit that a result may depend on
  int activation_limit = 0;  // the most activations on a rank, as peak_activations() counts them
  bool freed_at_I = false;
  double enough_s = 0;  // a step time at which to stop
  std::function<double(const Schedule&)> step_seconds;
  /// Called after each move with the best step so far. Returns false to stop.
  std::function<bool(int64_t moves, double best_s)> go_on;
};

struct SearchResult {
  enum class End { enough, nothing_found, moves, stopped } end;
  Schedule schedule;  // the best; `start` if none was better
  double step_s;
  int64_t moves;
};

/// Starts from `start`, a valid order within the limit, whose step takes `start_s`. A move changes one rank's
/// list: a block goes elsewhere nearby, two become a braid or a braid two, two braids exchange an action, a B
/// becomes I and W or these a B. Orders that are invalid (validate()) or hold too much are dropped. Rounds
/// of `moves` / kSearchRounds begin with the best order so far; each accepts slower orders less and less. A
/// round that finds nothing is the last.
SearchResult local_search(const Schedule& start, double start_s, const SearchRequest& request);

inline constexpr int kSearchRounds = 4;

}  // namespace stp
