// Chooses the activations that a rank offloads to the host, from the order of its blocks, and adds the ops
// that copy them.
#pragma once

#include <array>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "stp/program/builder.h"
#include "stp/schedule/copy_plan.h"

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
  /// `costs`: for planned copies.
  OffloadOps(const CopyRequest& costs, ProgramBuilder& builder);

  void begin_rank();
  /// Adds the planned copies that stand before the block.
  void begin_block();
  /// Call before a block's first compute op: it waits for the due offloads and frees their device memory.
  void wait_for_offloads();
  /// Call after a block's first compute op: adds the reloads that run beside this block. They start when the
  /// memory freed up to this block is free.
  void add_reloads();
  /// Call after the block of `action`, whose last compute op is `computed`: adds its offload, if any.
  void end_action(const Action& action, Ref computed);
  /// Returns the reload that `action` waits for, if any.
  [[nodiscard]] Ref reload_for(const Action& action) const;

 private:
  struct Copying {
    int freed_at;  // a block
    OpId offload;
  };
  using Activation = std::pair<int, int>;  // chunk, microbatch
  static Activation activation(const Action& action) { return {action.chunk, action.microbatch}; }
  [[nodiscard]] bool has_layers(int chunk) const;
  void add_offload(const Action& action, int freed_at);
  void add_planned(const PlannedCopy& copy, Ref here);

  ProgramBuilder& b_;
  std::vector<std::vector<PlannedCopy>> plan_;  // by rank; empty: no copies are planned
  std::vector<Ref> planned_;                    // by rank: the output that stands for its first planned copy
  // State of the current rank.
  std::map<int, OffloadedActivation> to_offload_;  // by microbatch
  std::vector<OffloadedActivation> to_reload_;     // the next one last
  size_t next_ = 0;                                // planned copy
  std::array<Ref, 2> empty_{};                     // by direction: its last planned copy, if that has no op
  std::vector<std::array<Ref, 2>> before_;         // by block: the last compute op and collective before it
  std::map<Activation, Ref> computed_;             // by activation: its forward's last compute op
  std::map<Activation, Ref> copies_;               // by activation: its offload, then its reload
  std::vector<Copying> copying_;                   // offloads that no op waits for yet
  std::vector<OpId> awaited_;                      // the block's first compute op waits for them
};

}  // namespace stp
