// The ops of a whole step, besides those of its blocks: data parallelism, tied embeddings, the gradients'
// norm and the optimizer. Private to this module.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "stp/program/builder.h"
#include "stp/program/lower.h"

namespace stp {

class StepOps {
 public:
  StepOps(const Lowering& lowering, ProgramBuilder& builder);

  void begin_rank();
  /// Call after a block's ops: reduces the gradients of chunks whose last backward it has, bucket by bucket.
  void end_block(const Block& block);
  void end_rank();

  /// Returns the weight gather that a chunk's forward waits for before a unit, once for each bucket.
  Ref take_weights(int chunk, Unit unit, int layer);
  /// Returns the last step's gradient norm, once: the first action other than F of chunk 0 waits for it.
  Ref take_total();

 private:
  void gather_weights();
  [[nodiscard]] bool has_weights(const Action& action) const;
  [[nodiscard]] std::span<const Bucket> buckets(int chunk) const;
  OpId add_of_bucket(OpKind kind, const Action& action, size_t bucket);
  void depend_on_gradients(const Bucket& bucket, int chunk);
  void send_total();
  void send_prefix();
  [[nodiscard]] Ref prefix_of_ranks_before() const;
  void add_norm_transfer(OpKind kind, int receiver);
  void reduce_embedding();
  void reduce_over_pipelines();
  [[nodiscard]] std::array<Ref, 2> gradients() const;
  void wait_for_gradients();

  const Lowering& lowering_;
  ProgramBuilder& b_;
  const Ref gradients_;  // by rank, with two pipelines: the output that stands for all its gradients
  // State of the current rank.
  std::vector<int> backwards_left_;  // by chunk: B and W not issued yet
  std::vector<OpId> reductions_;
  std::vector<std::vector<Ref>> gathers_;  // by chunk and bucket: weight gathers that forwards wait for
  Ref total_ = kNothing;
};

}  // namespace stp
