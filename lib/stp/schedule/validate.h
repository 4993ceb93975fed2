// Checks that an order can run: it is complete, in the order of its dependencies, and free of deadlock.
#pragma once

#include <functional>

#include "stp/schedule/schedule.h"

namespace stp {

/// The place of an action of a rank's block, for errors; of one that is missing, in kNoBlock.
using PlaceOfAction = std::function<std::string(int rank, size_t block, const Action& action)>;
inline constexpr size_t kNoBlock = ~size_t{0};
/// ", block 3", or "" for none.
std::string in_block(size_t block);
/// "rank 0, block 3, F0.1", or "rank 0, F0.1".
std::string place_in_schedule(int rank, size_t block, const Action& action);

/// Throws InputError that names the action, its place and the reason, unless
/// - every action's chunk and microbatch exist;
/// - each (chunk, microbatch) of a rank has exactly one F and either one B, or one I and one W;
/// - on its rank W follows I, and no braid holds two actions that wait for each other;
/// - passes of the vocabulary are on all ranks or none: there E, S, T (or everywhere U) and G of each
///   microbatch, unbraided, T and U behind S;
/// - with every block atomic (all inputs before it starts), each block of each rank can start.
/// Atomic blocks are the strictest reading of a braid, so a schedule that passes runs under every `release`.
/// An error about a deadlock names the whole cycle. Memory grows linearly with the number of actions, and so
/// does time, but to find a cycle: that takes up to as long for each of its ranks.
void validate(const Schedule& schedule, const PlaceOfAction& place = place_in_schedule);

/// Largest number of \(chunk, microbatch\) activations alive on each rank. An activation is alive from F to B
/// or W, or with `freed_at_I` from F to B or I. Those of a braid count as alive together.
std::vector<int> peak_activations(const Schedule& schedule, bool freed_at_I = false);

}  // namespace stp
