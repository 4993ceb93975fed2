// The kernel that takes the place of communication with ranks that do not exist. As launch.h: plain pointers,
// no checks but the launch's own.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "stp/device/tensor.h"
#include "stp/emulation/pacing.h"

namespace stp::cuda::launch {

/// What a CTA moves at a time. Its link buffer holds two.
inline constexpr int64_t kPacedPiece = int64_t{128} << 10;

struct PacedMove {
  Pace pace;  // pace.ctas blocks, of pieces of kPacedPiece
  CallKind kind = CallKind::send;
  int size = 1, index = 0;   // of the group, and this member of it
  DType type = DType::f32;   // of what is received
  const void* in = nullptr;  // aligned to 16 bytes, as are the others; null for a receive
  void* out = nullptr;       // `in` of an all-reduce; null for a send
  void* link = nullptr;      // paced_link_bytes(pace)
  /// Where the kernel leaves by how many nanoseconds a block had moved its bytes too late, at the most: what
  /// is there, if that is more. On time: nothing is written. May be null.
  unsigned long long* late_ns = nullptr;
};

size_t paced_link_bytes(const Pace& pace);

/// Moves the call's bytes as PacedCommunicator says (lib/stp/emulation/paced_communicator.h): each block its
/// span, a piece at a time, from the input into the block's link buffer, what a ring takes through it more
/// than once from there to its other half, and on to the output. No block begins a piece before the one
/// before it was due, nor ends before its last is, by the device's clock from when the block began.
void paced(cudaStream_t stream, const PacedMove& move);

}  // namespace stp::cuda::launch
