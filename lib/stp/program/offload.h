// Chooses the activations that a rank offloads to the host, from the order of its blocks, and adds the ops
// that copy them.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "stp/program/builder.h"

namespace stp {

/// An offloaded activation. Its blocks are indices into the rank's list.
struct OffloadedActivation {
  Action backward;  // its I or B
  int forward_block, backward_block;

  /// The block whose start frees the device memory: the copy to the host has the time of one block.
  [[nodiscard]] int freed_at() const { return forward_block + 2; }
  /// The copy back to the device runs beside this block.
  [[nodiscard]] int reloaded_at() const { return backward_block - 1; }
};

/// Returns chunk 0's activations whose memory is free for at least one block, in order of their backwards.
std::vector<OffloadedActivation> offloaded_activations(std::span<const Block> blocks);

class OffloadOps {
 public:
  explicit OffloadOps(ProgramBuilder& builder) : b_(builder) {}

  void begin_rank();
  void begin_block() { awaited_.clear(); }
  /// Call before a block's first compute op: it waits for the due offloads and frees their device memory.
  void wait_for_offloads();
  /// Call after a block's first compute op: adds the reloads that run beside this block. They start when the
  /// memory freed up to this block is free.
  void add_reloads();
  /// Call after the block of `action`: adds its offload, if any. `computed`: the block's last compute op.
  void add_offload(const Action& action, Ref computed);
  /// Returns the reload that `action` waits for, if any.
  [[nodiscard]] Ref reload_for(const Action& action) const;

 private:
  struct Copying {
    int freed_at;  // a block
    OpId offload;
  };
  ProgramBuilder& b_;
  // State of the current rank.
  std::map<int, OffloadedActivation> to_offload_;  // by microbatch
  std::vector<OffloadedActivation> to_reload_;     // the next one last
  std::map<int, Ref> copies_;                      // by microbatch: its offload, then its reload
  std::vector<Copying> copying_;                   // offloads that no op waits for yet
  std::vector<OpId> awaited_;                      // the block's first compute op waits for them
};

}  // namespace stp
