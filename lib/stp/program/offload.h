// Which activations a rank offloads to the host, and when: from the order of its blocks alone. And the ops
// that do it.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "stp/program/builder.h"

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

class OffloadOps {
 public:
  explicit OffloadOps(ProgramBuilder& builder) : b_(builder) {}

  void begin_rank();
  void begin_block() { awaited_.clear(); }
  /// The first compute op of a block frees the memory of what has had its time to be copied.
  void wait_for_offloads();
  /// Beside the block in front of that of their backwards, behind its first compute op: when all memory
  /// freed until then is free.
  void add_reloads();
  /// Behind the block of its forward, whose last compute op is `computed`.
  void add_offload(const Action& action, Ref computed);
  /// What an action waits for besides.
  [[nodiscard]] Ref reload_for(const Action& action) const;

 private:
  struct Copying {
    int freed_at;  // a block
    OpId offload;
  };
  ProgramBuilder& b_;
  // Of the rank:
  std::map<int, OffloadedActivation> to_offload_;  // by microbatch
  std::vector<OffloadedActivation> to_reload_;     // the next one last
  std::map<int, Ref> copies_;                      // by microbatch: its offload, then its reload
  std::vector<Copying> copying_;                   // offloads that no op waits for yet
  std::vector<OpId> awaited_;                      // those that the block waits for
};

}  // namespace stp
