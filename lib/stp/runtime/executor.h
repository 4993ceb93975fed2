// Runs a Program on the ranks that this process drives. One thread walks the issue order and gives each op of
// these ranks to the streams of its device. It depends only on the ops, not on their schedule.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stp/device/backend.h"
#include "stp/emulation/emulated_group.h"
#include "stp/model/offload.h"
#include "stp/program/issue_order.h"
#include "stp/runtime/head.h"
#include "stp/runtime/rank_state.h"

namespace stp {

/// The Program and data derived from it. All processes of a run have the same plan.
struct ExecutionPlan {
  Program program;
  IssueOrder order;
  std::vector<int> first_layer;          // by virtual stage: index in the whole model
  std::vector<uint32_t> number_on_link;  // by transfer: how many transfers of its link are issued earlier
  TransfersByOp sent_before = {};        // from these ops on, a rank reuses the memory of these sent tensors
  /// With post-validation: the ops that bring each rank the last step's norm. They are issued first.
  std::vector<OpId> totals = {};
  /// With post-validation: the number of ops of `order` that are issued before the norm is checked: `totals`,
  /// gathers of weights, and forwards of chunk 0 without the head.
  size_t issued_before_check = 0;
};
ExecutionPlan make_plan(Program program);

class Executor {
 public:
  /// Makes streams, groups and parameters.
  Executor(Backend& backend, const ExecutionPlan& plan, const Training& training);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor();

  /// Issues a whole step. `samples` are ordered by replica, then by microbatch. Exceptions name the rank and
  /// the op. With post-validation it first checks the previous step, and throws NotFinite if that was undone.
  void issue_step(std::span<const TokenSample> samples);
  /// Waits until all ranks are done; throws Cancelled if the run failed.
  void finish_step();
  /// With post-validation, checks the latest step, as the next step would. Throws NotFinite if it was undone.
  void settle();
  /// Before the first step: the optimizer has made so many.
  void restore_updates(int updates) { updates_ = updates; }

  [[nodiscard]] const std::vector<std::unique_ptr<RankState>>& ranks() const { return ranks_; }
  /// The times of the rank's ops, in absolute seconds. Call after finish_step(), if times are recorded.
  [[nodiscard]] std::vector<OpTime> op_times(const RankState& rank) const;
  /// The time, by this process's clock, when all ranks of the world had reached the step: the common origin
  /// of several processes' times. Call after finish_step(). None if one process drives all ranks.
  [[nodiscard]] std::optional<double> common_start() const {
    return common_start_ ? std::optional(common_start_->seconds()) : std::nullopt;
  }
  /// The rank's traffic in tensor-parallel collectives that are ops, in transfers between stages, and in its
  /// rings.
  [[nodiscard]] Traffic traffic(const RankState& rank) const;
  /// Calls visit(rank, chunk, bucket, elements) for each bucket of the first replica's ranks. `elements` are
  /// all elements of the bucket's buffer. If replicas hold shares, they are gathered in the weights or, with
  /// the optimizer's state in place of these, in the gradients, for which there may be no other memory. All
  /// processes must call it.
  void visit_whole(Tensor BucketState::*which,
                   const std::function<void(const RankState&, ChunkState&, int, const Tensor&)>& visit);
  /// See Trainer::take_emulated_use(). After finish_step().
  std::map<std::string, EmulatedUse> take_emulated_use();

 private:
  // The transfers from a rank to a rank of a neighbouring stage. This process drives at least one of the two.
  struct Link {
    std::unique_ptr<Group> group;
    std::unique_ptr<Stream> send_stream, receive_stream;
    RankState *sender = nullptr, *receiver = nullptr;  // null: another process drives it
    std::vector<EventRef> taken;  // by number on the link: the receiver has consumed the tensor
  };
  // Ranks that hold the same parameters, or one replica of the model, or that form a ring.
  struct RankGroup {
    std::vector<RankState*> ranks;
    std::unique_ptr<Group> group;
  };

  void make_ranks();
  void prepare_gemms(RankState& rank, const Shape& shape) const;
  void make_groups();
  void make_links();
  /// All groups are made by it. Keeps emulated ones of several members for take_emulated_use().
  std::unique_ptr<Group> new_group(const std::string& name, const std::vector<int>& members,
                                   GroupUse use = GroupUse::collectives);
  RankGroup make_group(const std::string& name, const std::vector<int>& members,
                       GroupUse use = GroupUse::collectives);
  /// Adds it if this process drives any of its members.
  void add_group(std::vector<RankGroup>& to, const std::string& name, const std::vector<int>& members,
                 GroupUse use = GroupUse::collectives);
  [[nodiscard]] RankState* local(int world_rank) const;
  /// The ranks of a stage, by world rank.
  [[nodiscard]] std::vector<RankState*> ranks_of(int pp) const;

  void begin_step(std::span<const TokenSample> samples);
  void synchronize_ranks();
  void issue(size_t begin, size_t end);
  void issue(OpId id);
  /// Makes `stream` wait for the op's dependencies.
  void wait_for_needed(RankState& rank, Stream& stream, OpId id);
  /// The op's time begins here.
  void start(RankState& rank, Stream& stream, OpId id);
  void begin(RankState& rank, Stream& stream, OpId id) {
    wait_for_needed(rank, stream, id);
    start(rank, stream, id);
  }
  void end(RankState& rank, Stream& stream, OpId id);
  void issue_compute(TensorGroup& group, const Op& op);
  void issue_collective(TensorGroup& group, const Op& op);
  bool add_piece(RankState& rank, const Op& op, SavedUnit& saved, Tensor& piece);
  Part gather_part(RankState& rank, const Op& op);
  void gather_again(TensorGroup& group, const Op& op) const;
  /// Calls carry(link, stream) between the op's begin and end on each link of its stream.
  void on_links(OpId id, const std::function<void(Link&, Stream&)>& carry);
  void issue_transfer(OpId id);
  void issue_exchange(OpId id);
  void issue_of_replicas(OpId id);
  /// Sums a tensor of each rank, in place, on one of the rank's streams.
  static void sum(const RankGroup& group, std::unique_ptr<Stream> RankState::*on,
                  const std::function<Tensor(const RankState&)>& tensor_of);
  /// Calls use(group, bucket) for each bucket of a stage's chunk, and each group of ranks that hold the same.
  void for_each_bucket(int pp, int chunk, const std::function<void(const RankGroup&, size_t)>& use) const;
  static void reduce_bucket(const RankGroup& group, const Op& op, size_t index);
  void issue_host_copy(OpId id);
  void issue_pipeline_reduce(OpId id);
  void issue_of_all_stages(OpId id);
  void share_value(RankGroup& group, std::span<const VocabularyPart> members, OpId id);
  void sum_shared_gradients();
  void wait_for_neighbour(RankState& rank, Stream& stream, OpId needed);
  /// Runs the sum of the second of the two ops that stand for it; the first only waits for its own rank.
  void issue_embedding_reduce(OpId id);
  void issue_optimizers(const std::vector<OpId>& ids);
  void sum_tied_gradients(RankState& rank) const;
  /// Runs the optimizer on a rank. `total`, if given, is the squared gradient norm, for clipping.
  void take_step(RankState& rank, const Tensor& total) const;
  void add_gradient_norms(TensorGroup& group) const;
  void clear_gradients(RankState& rank) const;
  void others_wait_for_compute(RankState& rank) const;
  // Post-validation (post_validation.cc).
  void issue_gradient_norm(OpId id);
  void issue_norm_transfer(OpId id);
  void issue_optimizer(OpId id);
  bool last_step_stands();
  double total_of_last_step();
  void wait_for_totals();
  void throw_away_forwards();
  void release_totals();

  /// Whether head and embedding, on different stages, share weights.
  [[nodiscard]] bool reduces_embedding() const {
    const Placement& placement = plan_.program.schedule.placement;
    return training_.model.tied() && placement.rank_of(0) != placement.rank_of(placement.stages() - 1);
  }
  /// Of a token's loss.
  [[nodiscard]] double loss_factor() const {
    const double tokens = double{1} * training_.microbatch_size * training_.seq * grid_.dp;
    return 1 / (tokens * plan_.program.schedule.all_microbatches());
  }
  /// With the vocabulary on all ranks: of what each rank has a copy, and a summand of the gradient.
  [[nodiscard]] static std::vector<Tensor> shared_gradients(const RankState& rank);
  [[nodiscard]] bool is_own(const RankState& rank, OpId op) const {
    return plan_.program.stream_of(op).rank == rank.place.pp;
  }
  OpEvents& events(RankState& rank, OpId op) const {
    return is_own(rank, op) ? rank.ops[op - plan_.program.rank_begin[rank.place.pp]] : rank.arrivals[op];
  }

  Backend& backend_;
  const ExecutionPlan& plan_;
  const Training& training_;
  const Training encoder_training_;  // of the vision encoder, if there is one
  const RankGrid grid_;
  std::vector<std::unique_ptr<RankState>> ranks_;        // by world rank
  std::vector<std::vector<TensorGroup>> tensor_groups_;  // by stage
  // By stage, and the axes along which a group's ranks differ: of reductions of gradients; of exchanges.
  std::vector<std::map<Axes, std::vector<RankGroup>>> data_groups_, exchange_groups_;
  std::vector<RankGroup>
      pipeline_groups_;  // with two pipelines: pairs of ranks, and a copy of a chunk on each
  // With the vocabulary on all ranks, one of each pipeline rank: by stream of the Program; for the optimizer.
  std::vector<std::vector<RankGroup>> vocabulary_groups_;
  std::vector<RankGroup> shared_groups_;
  std::vector<RankGroup> model_groups_;                  // with post-validation, one for each stage
  RankGroup world_;                                      // if there are several processes
  std::vector<std::vector<OffloadedTensor>> offloaded_;  // by virtual stage: an activation's
  std::vector<std::vector<Link>> links_;                 // by stream of the Program
  int updates_ = 0;                                      // optimizer steps that were not undone
  bool unchecked_ = false;                               // with post-validation: the latest step is unchecked
  std::vector<RankGroup> tied_groups_;                   // with a tied head on another stage: pairs of ranks
  std::optional<OpId> embedding_reduce_;                 // the first op of the two, until the second
  std::vector<OpId> optimizers_;                         // of the step that is being issued
  // The rank and op whose work is being issued, for error messages. No op while a step begins.
  const RankState* issuing_ = nullptr;
  std::optional<OpId> issuing_op_;
  EventRef common_start_;
  std::vector<std::pair<std::string, EmulatedGroup*>> emulated_groups_;  // with their kinds in records
};

}  // namespace stp
