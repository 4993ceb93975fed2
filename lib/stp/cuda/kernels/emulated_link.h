// The kernel that takes the place of communication with ranks that do not exist.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stp/device/stream.h"
#include "stp/device/tensor.h"
#include "stp/emulation/link_emulation.h"

namespace stp::cuda {

/// What a CTA moves at a time. Its link buffer holds two.
inline constexpr int64_t kLinkPiece = int64_t{128} << 10;

struct EmulatedMove {
  LinkEmulation link;  // link.ctas blocks, of pieces of kLinkPiece
  CallKind kind = CallKind::transfer;
  int size = 1, index = 0;   // of the group, and this member of it
  DType type = DType::f32;   // of what is received
  const void* in = nullptr;  // aligned to 16 bytes, as are the others; null where a transfer comes in
  void* out = nullptr;       // `in` of an all-reduce; null where a transfer goes out
  void* buffers = nullptr;   // link_buffer_bytes(link)
};

size_t link_buffer_bytes(const LinkEmulation& link);

/// Moves the call's bytes as EmulatedGroup says (lib/stp/emulation/emulated_group.h): each block its span, a
/// piece at a time, from the input into the block's link buffer, what a ring takes through it more than once
/// from there to its other half, and on to the output. No block begins a piece before the one before it was
/// due, nor ends before its last is, by the device's clock from when the block began.
void emulate_link(Stream& stream, const EmulatedMove& move);

}  // namespace stp::cuda
