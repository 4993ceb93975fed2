// Offload and reload: saved tensors of one chunk and microbatch on their way to the host and back.
#pragma once

#include <span>

#include "stp/model/offload.h"
#include "stp/runtime/rank_state.h"

namespace stp {

/// Copies the tensors to the host, as work of rank.d2h. Their units no longer have them; their device memory
/// stays held.
void offload(RankState& rank, OpId id, const Op& op, std::span<const OffloadedTensor> tensors);
/// Frees that device memory, as work of `stream`, which has waited for the offload.
void free_offloaded(RankState& rank, Stream& stream, OpId offload);
/// Copies them back, as work of rank.h2d, and frees the host's memory. Their units have them again.
void reload(RankState& rank, const Op& op, std::span<const OffloadedTensor> tensors);

}  // namespace stp
