// What the ranks of one GPU do together with each other's buffers: one kernel for all of a group. As
// launch.h: plain pointers, no checks but the launch's own.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "stp/device/communicator.h"

namespace stp::cuda::launch {

/// Ranks of a group that shares a GPU.
inline constexpr int kMostParties = 64;

/// By party; all aligned to 16 bytes.
struct PartyBuffers {
  int parties = 0;
  const void* in[kMostParties] = {};
  void* out[kMostParties] = {};
};

// T is float, double or __nv_bfloat16. Sums are made in the order of the parties, in double for double, else
// in float, and rounded once: all get the same bits, in every run.

/// out[p] = Σ in for all p; out[p] may be in[p], and must overlap no other.
template <typename T>
void all_reduce(cudaStream_t stream, Reduce reduce, const PartyBuffers& buffers, int64_t elements);
/// out[p] = the p-th piece of Σ in, each of `elements`.
template <typename T>
void reduce_scatter(cudaStream_t stream, Reduce reduce, const PartyBuffers& buffers, int64_t elements);
/// out[p] = all in, each of `bytes`, one behind the other. `bytes` is even.
void all_gather(cudaStream_t stream, const PartyBuffers& buffers, size_t bytes);

}  // namespace stp::cuda::launch
