// One rank of a run: issues its share of a Program to the streams of its device, op by op, in program order.
// It interprets ops alone; which schedule they came from it does not know.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "stp/device/backend.h"
#include "stp/emulation/paced_use.h"
#include "stp/program/program.h"
#include "stp/runtime/chunk_state.h"
#include "stp/runtime/units.h"

namespace stp {

/// What all ranks of a run share: the Program, and what follows from it.
struct ExecutionPlan {
  Program program;
  int receives_ahead;            // per link, at the most (lib/stp/program/communication.h)
  std::vector<int> first_layer;  // by virtual stage: of the whole model
};
ExecutionPlan make_plan(Program program);

class RankExecutor {
 public:
  /// Makes the rank's streams, groups and parameters. `world_rank` is driven by this process.
  RankExecutor(Backend& backend, const ExecutionPlan& plan, const Training& training, int world_rank);
  ~RankExecutor();

  /// Issues a whole step. `samples`: those of this data-parallel replica, microbatch after microbatch.
  void issue_step(std::span<const TokenSample> samples, int step);
  /// Waits until the rank is done; throws Stopped if the run failed.
  void finish_step();

  /// This replica's share of the step's loss; 0 on ranks without the head. After finish_step().
  [[nodiscard]] double loss() const { return loss_; }
  /// By op of this rank, absolute seconds. After finish_step(), if times are recorded.
  [[nodiscard]] std::vector<OpTime> op_times() const;
  /// Likewise of the transfers to this rank, from when their receive could begin to when they were here.
  [[nodiscard]] std::map<OpId, OpTime> arrivals() const;
  /// When all ranks of the world had come to the step, by this rank's clock: what is comparable between
  /// processes. After finish_step(); none where one process drives all ranks.
  [[nodiscard]] std::optional<double> common_start() const {
    return common_start_ ? std::optional(common_start_->seconds()) : std::nullopt;
  }
  [[nodiscard]] const RankGrid::Place& place() const { return place_; }
  [[nodiscard]] std::vector<ChunkState>& chunks() { return chunks_; }
  [[nodiscard]] Device& device() { return device_; }
  [[nodiscard]] Stream& compute() { return *compute_; }
  [[nodiscard]] int64_t all_reduce_bytes() const { return tp_group_->traffic().all_reduce_bytes; }
  [[nodiscard]] int64_t sent_bytes() const;
  /// See Trainer::take_paced_use(). After finish_step().
  std::map<std::string, PacedUse> take_paced_use();

 private:
  using ChainKey = std::tuple<bool, int, int>;  // backward, virtual stage, microbatch
  // The transfers of one neighbour to this rank.
  struct Link {
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Communicator> group;
    std::vector<OpId> transfers;  // in the sender's order
    size_t posted = 0;
  };
  struct SendLink {
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Communicator> group;
  };

  void make_groups(Backend& backend);
  void issue(OpId id);
  void issue_compute(const Op& op);
  void issue_all_reduce(const Op& op);
  void issue_transfer(const Op& op, Stream& stream);
  void issue_gradient_reduce(const Op& op);
  void issue_optimizer();
  void finish_empty_actions(int block);
  void post_receives(OpId transfer);
  void begin_step(std::span<const TokenSample> samples);
  void meet_all_ranks();

  [[nodiscard]] Stream& stream_of(const Op& op);
  [[nodiscard]] const EventRef& done(OpId id) const { return done_[id - begin_]; }
  [[nodiscard]] int stage_of(const Op& op) const {
    return plan_.program.schedule.placement.stage(place_.pp, op.chunk);
  }
  [[nodiscard]] bool mine(int stage) const {
    return plan_.program.schedule.placement.rank_of(stage) == place_.pp;
  }
  [[nodiscard]] bool last_stage(int stage) const {
    return stage + 1 == plan_.program.schedule.placement.stages();
  }
  [[nodiscard]] bool without_segments(int stage) const {
    return plan_.program.layers_per_stage[stage] == 0 && !last_stage(stage);
  }
  Tensor take_input(bool backward, int stage, int microbatch);
  Tensor take_output(bool backward, int stage, int microbatch);
  SavedUnit& saved(Unit unit, int chunk, int layer, int microbatch);
  [[nodiscard]] std::vector<ParameterState>& parameters(Unit unit, int chunk, int layer);
  [[nodiscard]] const ParameterState& embedding() const;
  void embed_backward(Stream& stream, int microbatch, Tensor gradient);
  // The tensors that a transfer carries, as chains.
  [[nodiscard]] std::vector<ChainKey> carried(OpId transfer) const;

  const ExecutionPlan& plan_;
  const Training& training_;
  Device& device_;
  const int world_rank_;
  const bool several_processes_;
  const RankGrid::Place place_;
  OpId begin_, end_;

  std::unique_ptr<Stream> compute_, tp_, dp_;
  std::map<uint32_t, SendLink> sends_;  // by program stream
  std::map<uint32_t, Link> links_;      // by program stream of the sender
  std::unique_ptr<Communicator> tp_group_, inline_group_, dp_group_, model_group_;
  std::unique_ptr<UnitContext> context_;
  std::vector<ChunkState> chunks_;

  // The step that is being issued.
  std::vector<Tensor> tokens_, targets_;  // by microbatch, where this rank needs them
  Tensor loss_tensor_;
  double loss_ = 0;
  int step_ = 0;
  EventRef common_start_;
  std::vector<EventRef> started_, done_;                       // by op
  std::map<ChainKey, Tensor> current_;                         // what a chain under way, or ended, holds
  std::map<ChainKey, Tensor> received_;                        // by the chain that made it, elsewhere
  std::map<OpId, EventRef> expected_, arrived_;                // by transfer to this rank: begin and end
  std::map<OpId, EventRef> taken_;                             // by transfer: its tensor was taken up
  std::map<std::tuple<int, int, int, int>, SavedUnit> saved_;  // unit, chunk, layer, microbatch
};

}  // namespace stp
