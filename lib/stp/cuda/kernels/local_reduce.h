// What the ranks of one GPU do together with each other's buffers: one kernel for all of a group.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stp/device/group.h"

namespace stp::cuda {

/// Ranks of a group that shares a GPU.
inline constexpr int kMostLocalMembers = 64;

/// By member; all aligned to 16 bytes.
struct LocalBuffers {
  int members = 0;
  const void* in[kMostLocalMembers] = {};
  void* out[kMostLocalMembers] = {};
};

// `type`: f32, f64 or bf16. Sums are made in the order of the members, in f64 for f64, else in f32, and
// rounded once: all get the same bits, in every run.

/// out[m] = Σ in for all m; out[m] may be in[m], and must overlap no other.
void local_all_reduce(Stream& stream, Reduce reduce, DType type, const LocalBuffers& buffers,
                      int64_t elements);
/// out[m] = the m-th piece of Σ in, each of `elements`.
void local_reduce_scatter(Stream& stream, Reduce reduce, DType type, const LocalBuffers& buffers,
                          int64_t elements);
/// out[m] = all in, each of `bytes`, one behind the other. `bytes` is even.
void local_all_gather(Stream& stream, const LocalBuffers& buffers, size_t bytes);

}  // namespace stp::cuda
