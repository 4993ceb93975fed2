// PipeOffload's pass over a finished order: which activations leave for the host, and when (ICML 2025, arXiv
// 2503.01328). The copies of ranks that share a link take turns on it.
#pragma once

#include <vector>

#include "stp/schedule/schedule.h"

namespace stp {

/// A copy of a rank: of the activation of a chunk and microbatch, to the host or back.
struct PlannedCopy {
  Action action;  // F: its activation leaves. I or B: it returns for that
  double start;   // in the unit of the costs
  int block;      // the copy stands before this block of its rank
  /// Of a copy to the host: the block that waits for it and frees the activation. Of a copy back: it waits
  /// for the blocks before this one, during which it starts.
  int bound;
  /// The copy in the same direction before it on a shared link, where another rank has it: that rank, and
  /// the index in its list; -1: none.
  int neighbour = -1, neighbour_copy = -1;

  [[nodiscard]] bool back() const { return action.pass != Pass::F; }
};

struct CopyRequest {
  PassCosts costs;       // of a chunk
  double seconds = 1.5;  // one copy, in the unit of the costs
  int chunks = 1;        // activations of chunks below this one leave
  int share = 2;         // so many neighbours share a link of each direction
};

/// By rank, its copies in the order in which they run: one at a time. The plan runs the schedule by
/// time_blocks(), with the forwards of the warm-up as late as they delay nothing. An activation with at most
/// six copies' time between F and its I or B stays, and so does one whose copies find no room,
/// the copy back in the second half of that time.
///
/// Every copy starts before its block does, after every block that it waits for has started, and after the
/// copies that it waits for: the plan cannot deadlock. Needs a valid schedule and passes that take time.
std::vector<std::vector<PlannedCopy>> plan_copies(const Schedule& schedule, const CopyRequest& request);

}  // namespace stp
