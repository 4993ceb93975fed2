// Communication with ranks that do not exist, at the pace that their links are said to have.
#pragma once

#include <memory>
#include <vector>

#include "stp/backend/communicator.h"
#include "stp/backend/pacing.h"

namespace stp {

/// The end of `members[index]`, alone. Every call takes `replay.times` at the least, and meanwhile copies
/// what a ring's or a link's end copies in its own memory: a collective's input into link buffers and out of
/// them. No sum is made: an all-reduce leaves its tensor as it was, a reduce-scatter its own piece of the
/// input, an all-gather's output is the input over and over, and what is received are small finite numbers,
/// the same each time. A call whose time is longer than the run's deadline fails the run at once.
std::unique_ptr<Communicator> make_paced_cpu_communicator(const Replay& replay,
                                                          const std::vector<int>& members, int index);

}  // namespace stp
