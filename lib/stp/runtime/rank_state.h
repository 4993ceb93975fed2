// The state of one local rank while a Program runs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "stp/program/program.h"
#include "stp/runtime/units.h"

namespace stp {

/// When an op began and ended on a rank.
struct OpEvents {
  EventRef started, done;  // `started`: if times are recorded
};

struct RankState {
  int world_rank;
  RankGrid::Place place;
  Device& device;
  /// `tp` is null if the tensor-parallel group has one rank: `compute` then runs its collectives. `gather`,
  /// for the second all-gather for weight gradients, exists with sequence parallelism; `cp`, `dp`, `d2h` and
  /// `h2d` where the Program has the rank's stream.
  std::unique_ptr<Stream> compute, tp, cp, dp, gather, d2h, h2d;
  std::map<uint32_t, std::unique_ptr<Stream>> vocabulary;  // by stream of the Program, of any rank
  std::optional<UnitContext> context, encoder;             // of the language model; of its vision encoder
  std::vector<ChunkState> chunks;

  // The step that is being issued.
  std::vector<Tensor> tokens, targets, patches;  // by microbatch, if this rank needs them
  Tensor positions;                              // of a microbatch's tokens, if they are learned
  Tensor loss, norm;                             // the loss; the square of the gradients' norm
  // With post-validation: the sum of squares of the ranks before; the last step's sum over all ranks.
  Tensor prefix, total;
  std::vector<OpEvents> ops;  // by op of this rank, from rank_begin on
  std::map<OpId, OpEvents>
      arrivals;  // transfers to this rank, other ranks' ops of all stages; `started`: the receive could begin
  std::unordered_map<ValueId, Tensor> values;
  std::optional<OpId> pipeline_reduce;                         // begun, until the other rank's begins
  std::map<std::tuple<Unit, int, int, int>, SavedUnit> saved;  // by unit, chunk, layer and microbatch
  std::map<OpId, std::vector<Tensor>> leaving;  // by offload: on the device until the copy is done
  std::map<std::pair<int, int>, std::vector<Tensor>> on_host;  // by chunk and microbatch
  double loss_value = 0;                                       // of the step, after it ended

  [[nodiscard]] Stream& collectives() const { return tp ? *tp : *compute; }
  [[nodiscard]] const UnitContext& context_of(Unit unit) const {
    return is_vision(unit) ? *encoder : *context;
  }
  [[nodiscard]] SavedUnit& saved_unit(const Op& op) {
    return saved[{op.unit, op.chunk, op.layer, op.microbatch}];
  }
  [[nodiscard]] const std::vector<ParameterState>& parameters(const Op& op) const {
    return chunks[op.chunk].of(op.unit, op.layer);
  }
  /// Removes and returns the tensor of a value.
  [[nodiscard]] Tensor take(ValueId value) {
    auto node = values.extract(value);
    if (!node) throw std::logic_error("rank " + std::to_string(world_rank) + " lacks a value");
    return std::move(node.mapped());
  }
};

}  // namespace stp
