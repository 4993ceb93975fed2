// Offload and reload of the saved tensors of one chunk and microbatch.
#pragma once

#include <span>

#include "stp/model/offload.h"
#include "stp/runtime/rank_state.h"

namespace stp {

/// Copies the tensors to the host, as work of rank.d2h. Their units no longer hold them. Their device memory
/// stays allocated.
void offload(RankState& rank, OpId id, const Op& op, std::span<const OffloadedTensor> tensors);
/// Frees the offloaded tensors' device memory, as work of `stream`, which has waited for the offload.
void free_offloaded(RankState& rank, Stream& stream, OpId offload);
/// Copies the tensors back to their units, as work of `stream`, and frees the host memory.
void reload(RankState& rank, Stream& stream, const Op& op, std::span<const OffloadedTensor> tensors);

}  // namespace stp
