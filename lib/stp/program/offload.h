// Which activations a rank offloads to the host, and when: from the order of its blocks alone.
#pragma once

#include <span>
#include <vector>

#include "stp/schedule/schedule.h"

namespace stp {

/// An activation that is offloaded, of a chunk and a microbatch, by indices of blocks in its rank's list.
struct OffloadedActivation {
  Action backward;  // its I or B
  int forward_block, backward_block;

  /// The block that begins when the copy to the host is done, and its device memory free: the copy has the
  /// time of one block.
  [[nodiscard]] int freed_at() const { return forward_block + 2; }
  /// The block beside which it is copied back.
  [[nodiscard]] int reloaded_at() const { return backward_block - 1; }
};

/// Those of chunk 0 whose memory is free during at least one block, in the order of their backwards.
std::vector<OffloadedActivation> offloaded_activations(std::span<const Block> blocks);

}  // namespace stp
