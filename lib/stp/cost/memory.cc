#include "stp/cost/memory.h"

#include <algorithm>

#include "stp/cost/cost_table.h"
#include "stp/model/offload.h"
#include "stp/program/offload.h"

namespace stp {
namespace {

// Transformer Engine's user buffers, of qkv, proj, fc1 and fc2 in each of the three passes, each for the
// hidden state of all tokens (initialize_ub in pytorch/module/base.py; 10 in older versions).
constexpr double kUserBuffers = 12;

bool holds_scores(Saved tensor) {
  return tensor == Saved::softmax || tensor == Saved::softmax_mask || tensor == Saved::softmax_after_dropout;
}

// The effects of copies at the start of each block of a rank. Planned copies come back before it frees.
struct Copies {
  std::vector<double> freed, reloaded, returned;  // bytes

  Copies(const Program& program, int rank, const std::vector<ActivationBytes>& bytes)
      : freed(program.schedule.ranks[rank].size(), 0), reloaded(freed), returned(freed) {
    if (program.strategy.offload == 0) return;
    if (program.ops.empty()) {
      const double moved = bytes[program.schedule.placement.stage(rank, 0)].offloaded;
      for (const OffloadedActivation& each : offloaded_activations(program.schedule.ranks[rank])) {
        freed[each.freed_at()] += moved;
        reloaded[each.reloaded_at()] += moved;
      }
      return;
    }
    for (OpId id = program.rank_begin[rank]; id < program.rank_begin[rank + 1]; ++id) {
      const Op& op = program.ops[id];
      if (op.kind == OpKind::reload)
        (program.strategy.offload_chunks > 0 ? returned : reloaded)[op.block] +=
            bytes[program.stage_of(id)].offloaded;
      for (const OpId needed : program.dependencies(id))
        if (program.frees(id, needed)) freed[op.block] += bytes[program.stage_of(needed)].offloaded;
    }
  }
};

}  // namespace

std::vector<double> parameters_per_stage(const Job& job, const std::vector<int>& layers_per_stage,
                                         const Placement& placement) {
  const double vocabulary =
      job.model.vocabulary_parameters() / job.strategy().tp / job.shape.vocabulary_ranks();
  const double of_layer = job.model.layer_parameters(), positions = job.model.position_parameters();
  std::vector<double> parameters;
  for (const int layers : layers_per_stage) parameters.push_back(layers * of_layer / job.strategy().tp);
  const auto is_here = [&](int stage) { return placement.rank_of(stage) == placement.rank_of(0); };
  const bool both_ends_here = is_here(placement.stages() - 1);  // also with two pipelines
  for (int stage = 0; stage < placement.stages(); ++stage) {
    if (job.shape.shares_vocabulary) {
      if (placement.chunk_of(stage) == 0) parameters[stage] += 2 * vocabulary + positions;
      continue;
    }
    if (placement.is_first(stage))
      parameters[stage] += vocabulary + positions + job.model.vision_parameters() / job.strategy().tp;
    if (placement.is_last(stage) && !(job.model.tied() && both_ends_here)) parameters[stage] += vocabulary;
  }
  return parameters;
}

std::vector<double> parameters_per_rank(const Job& job, const std::vector<int>& layers_per_stage,
                                        const Placement& placement) {
  const std::vector<double> by_stage = parameters_per_stage(job, layers_per_stage, placement);
  std::vector<double> parameters(job.strategy().pp, 0);
  for (int stage = 0; stage < placement.stages(); ++stage)
    parameters[placement.rank_of(stage)] += by_stage[stage];
  return parameters;
}

ParameterBytes parameter_bytes(double parameters, const Job& job) {
  const double own = job.recipe.state_bytes, state = job.strategy().post_validation ? 2 * own + kBf16 : own;
  return {kBf16 * parameters, job.shape.gradient_bytes * parameters,
          state * parameters / job.optimizer_shares()};
}

WorkingBytes working_bytes(double parameters, const Job& job, bool last_stage,
                           std::optional<double> of_first_stage) {
  if (!uses_transformer_engine(job.implementation)) return {};
  const Strategy& strategy = job.strategy();
  const double hidden = hidden_bytes(job.model, job.shape), tokens = kBf16 * job.shape.tokens();
  const bool overlaps = strategy.overlaps();
  WorkingBytes bytes;
  if (overlaps) bytes.buffers += kUserBuffers * hidden;
  if (last_stage && strategy.sequence_parallel) bytes.buffers += hidden;  // of the head's gathered input
  // Of the MLP's backward: the gathered gradient of the output, the input's gradient before its reduction,
  // and the norm's output, which alone is a saved tensor where nothing is gathered; gradients of the
  // activation and of its input. The first three lie in the user buffers, if there are any.
  const int gathered = overlaps ? 0 : strategy.sequence_parallel ? 3 : 2;
  bytes.in_backward = gathered * hidden + tokens * (job.model.gated() ? 3 : 2) * job.model.ffn / strategy.tp;
  const double of_vocabulary = kBf16 * job.model.vocab / strategy.tp / job.shape.vocabulary_ranks();
  // Of the head's: the input's gradient, and from 2.18 on the logits' in bf16.
  if (last_stage)
    bytes.in_backward =
        std::max(bytes.in_backward, hidden + (job.implementation == Implementation::megatron_te_2_18
                                                  ? job.shape.tokens() * of_vocabulary
                                                  : 0));
  // Of the embedding's: the gathered gradient of its output, and a table's in bf16 before it is added up.
  if (of_first_stage)
    bytes.in_backward = std::max(bytes.in_backward, (strategy.sequence_parallel ? hidden : 0) +
                                                        std::max(of_vocabulary * job.model.hidden,
                                                                 kBf16 * job.model.position_parameters()) -
                                                        *of_first_stage);
  // The copy is made when no activations are left.
  if (job.copies_gradients()) bytes.in_step = kFp32 * parameters / job.optimizer_shares();
  return bytes;
}

std::vector<ActivationBytes> activation_bytes(const Job& job, const std::vector<int>& layers_per_stage,
                                              int pipelines) {
  const auto unit_bytes = [&](Unit unit) {
    ActivationBytes bytes{0, 0};
    double of_core = 0;
    for (const SavedTensor& tensor : saved_tensors(job.model, job.shape, job.implementation, unit)) {
      if (tensor.made_by_forward) bytes.until_I += tensor.bytes;
      if (tensor.weight_gradient) bytes.until_W += tensor.bytes;
      if (tensor.recomputed()) bytes.during_backward += tensor.bytes;
      if (holds_scores(tensor.which)) of_core += tensor.bytes;
    }
    // Transformer Engine's deferred weight gradients keep their GEMMs' operands. Zero-bubble code over
    // autograd keeps nearly all of the graph's tensors until W, also those of a recomputation: its own
    // accounting (sail-sg/zero-bubble, ZB-V) frees 2 of 34 at I, and the scores of attention (arXiv
    // 2401.10241, Table 1).
    if (job.implementation == Implementation::megatron || job.implementation == Implementation::megatron_2022)
      bytes.until_W = (bytes.until_I + bytes.during_backward - of_core) * 32 / 34;
    return bytes;
  };
  const ActivationBytes attn = unit_bytes(Unit::attn), mlp = unit_bytes(Unit::mlp),
                        head = unit_bytes(Unit::head);
  const double layer = attn.until_I + mlp.until_I;
  const Recompute& again = job.strategy().recompute;
  const double input =
      hidden_bytes(job.model, job.shape) / (job.strategy().sequence_parallel ? job.strategy().tp : 1);
  std::vector<double> offloaded(layers_per_stage.size(), 0);
  if (const double ratio = job.strategy().offload; ratio > 0)
    offloaded = offloaded_bytes(job.model, job.shape, job.implementation, layers_per_stage, ratio);
  std::vector<ActivationBytes> stages;
  for (const int layers : layers_per_stage) {
    // Where only a chunk's first layers are recomputed, the others' tensors are free by then.
    const int whole = again.whole_layers(layers);
    const double recomputed = !again.layer      ? std::max(attn.during_backward, mlp.during_backward)
                              : whole == layers ? layer
                                                : 0;
    stages.push_back({whole * input + (layers - whole) * layer, layers * (attn.until_W + mlp.until_W),
                      layers > 0 ? recomputed : 0, offloaded[stages.size()]});
  }
  const size_t depth = stages.size() / pipelines;
  for (ActivationBytes& stage : stages)
    if (job.shape.shares_vocabulary) stage.shared_head = head.until_I;
  for (size_t first = 0; !job.shape.shares_vocabulary && first < stages.size(); first += depth) {
    stages[first + depth - 1].until_I += head.until_I;
    stages[first + depth - 1].until_W += head.until_W;
  }
  for (const Unit unit : kUnits) {  // the embedding keeps a tensor only with a vision encoder
    if (!is_vision(unit) && unit != Unit::embedding) continue;
    const ActivationBytes bytes = unit_bytes(unit);
    const int count = is_of_layer(unit) ? job.model.vision.layers : 1;
    stages.front().until_I += count * bytes.until_I;
    stages.front().until_W += count * bytes.until_W;
  }
  return stages;
}

double peak_activation_bytes(const Program& program, int rank, const std::vector<ActivationBytes>& bytes,
                             const std::vector<double>& microbatch_factors) {
  const Schedule& schedule = program.schedule;
  const Copies copies(program, rank, bytes);
  double alive = 0, peak = 0;
  for (size_t index = 0; index < schedule.ranks[rank].size(); ++index) {
    alive += copies.returned[index];
    peak = std::max(peak, alive);
    alive += copies.reloaded[index] - copies.freed[index];
    double freed = 0, working = 0;
    for (const Action& action : schedule.ranks[rank][index].actions()) {
      const ActivationBytes& stage = bytes[schedule.placement.stage(rank, action.chunk)];
      const double factor = microbatch_factor(microbatch_factors, program, action.microbatch);
      switch (action.pass) {
        case Pass::F:
          alive += factor * stage.until_I;
          break;
        case Pass::I:
          working += factor * stage.during_backward;
          freed += factor * (stage.until_I - stage.until_W);
          break;
        case Pass::B:
          working += factor * stage.during_backward;
          freed += factor * stage.until_I;
          break;
        case Pass::W:
          freed += factor * stage.until_W;
          break;
        case Pass::S:
          alive += factor * stage.shared_head;
          break;
        case Pass::T:
        case Pass::U:
          freed += factor * stage.shared_head;
          break;
        default:  // of the embedding
          break;
      }
    }
    peak = std::max(peak, alive + working);
    alive -= freed;
  }
  return peak;
}

std::vector<double> peak_activation_bytes(const Program& program, const std::vector<ActivationBytes>& bytes,
                                          const std::vector<double>& microbatch_factors) {
  std::vector<double> peaks;
  for (int rank = 0; rank < program.schedule.pp(); ++rank)
    peaks.push_back(peak_activation_bytes(program, rank, bytes, microbatch_factors));
  return peaks;
}

std::vector<double> peak_host_bytes(const Program& program, const std::vector<ActivationBytes>& bytes) {
  std::vector<double> peaks;
  for (int rank = 0; rank < program.schedule.pp(); ++rank) {
    double held = 0, peak = 0;
    for (OpId id = program.rank_begin[rank]; id < program.rank_begin[rank + 1]; ++id) {
      const OpKind kind = program.ops[id].kind;
      if (kind == OpKind::offload) held += bytes[program.stage_of(id)].offloaded;
      peak = std::max(peak, held);
      if (kind == OpKind::reload) held -= bytes[program.stage_of(id)].offloaded;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

}  // namespace stp
