// The kernel that replaces communication with ranks that do not exist.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stp/device/stream.h"
#include "stp/device/tensor.h"
#include "stp/emulation/link_emulation.h"

namespace stp::cuda {

/// Bytes that a CTA moves at a time. Its link buffer holds two pieces.
inline constexpr int64_t kLinkPiece = int64_t{128} << 10;

struct EmulatedMove {
  LinkEmulation link;  // link.ctas blocks, with pieces of kLinkPiece
  CallKind kind = CallKind::transfer;
  int size = 1, index = 0;   // of the group; this member's place in it
  DType type = DType::f32;   // of the received data
  const void* in = nullptr;  // aligned to 16 bytes, like the others; null for an incoming transfer
  void* out = nullptr;       // `in` for an all-reduce; null for an outgoing transfer
  void* buffers = nullptr;   // link_buffer_bytes(link)
};

size_t link_buffer_bytes(const LinkEmulation& link);

/// Moves the call's bytes as EmulatedGroup defines (lib/stp/emulation/emulated_group.h). Each block moves its
/// span piece by piece: from the input into the block's link buffer, for bytes that pass a ring twice into
/// the buffer's other half, and then to the output. By the device's clock from the block's start, no block
/// begins a piece before the previous piece is due, or ends before its last piece is due.
void emulate_link(Stream& stream, const EmulatedMove& move);

}  // namespace stp::cuda
