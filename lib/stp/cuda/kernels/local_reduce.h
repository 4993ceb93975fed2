// Collectives of ranks that share a GPU: one kernel for the whole group works on all buffers.
#pragma once

#include <cstdint>

#include "stp/device/group.h"

namespace stp::cuda {

/// Largest group of ranks that share a GPU.
inline constexpr int kMostLocalMembers = 64;

/// Buffers by member, aligned to 16 bytes.
struct LocalBuffers {
  int members = 0;
  const void* in[kMostLocalMembers] = {};
  void* out[kMostLocalMembers] = {};
};

// `type`: f32, f64 or bf16. Sums are made in the members' order, in f64 for f64, else in f32, and rounded
// once. All members get the same bits, in every run.

/// out[m] = Σ in for all m. out[m] may be in[m], and must overlap no other buffer.
void local_all_reduce(Stream& stream, Reduce reduce, DType type, const LocalBuffers& buffers,
                      int64_t elements);
/// out[m] = the m-th piece of Σ in. Pieces have `elements` elements.
void local_reduce_scatter(Stream& stream, Reduce reduce, DType type, const LocalBuffers& buffers,
                          int64_t elements);

}  // namespace stp::cuda
