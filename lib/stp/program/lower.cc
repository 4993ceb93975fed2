#include "stp/program/lower.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "stp/base/error.h"
#include "stp/program/offload.h"

namespace stp {
namespace {

// A dependency before all ops are known: an op, or the output of a virtual stage.
using Ref = uint32_t;
constexpr Ref kOutputBit = Ref{1} << 31;
constexpr Ref kNothing = ~Ref{0};

UnitPass pass_of(const Segment& segment) {
  return segment.main == Segment::Main::forward          ? UnitPass::F
         : segment.main == Segment::Main::input_gradient ? UnitPass::I
                                                         : UnitPass::W_late;
}

// Whether the segment's compute is in parts.
bool in_parts(const Segment& segment, const Division& division) {
  return segment.main != Segment::Main::weight_gradients && division.divides(segment.unit);
}
// Whether its collectives stand between the steps of its parts.
bool overlaps(const Segment& segment, const Division& division) {
  return division.overlaps() && in_parts(segment, division);
}

size_t ops_of(const Segment& segment, const Lowering& lowering) {
  const Division division = lowering.division();
  const size_t weights = segment.weights == Segment::Weights::none          ? 0
                         : segment.weights == Segment::Weights::both_behind ? 1
                                                                            : 2;
  const size_t collectives = (lowering.sequence_parallel && segment.gathers) + segment.all_reduce;
  if (!in_parts(segment, division)) return 1 + collectives + weights;
  const UnitPass pass = pass_of(segment);
  size_t ops = collectives;
  for (const UnitPart part : {UnitPart::norm, UnitPart::before, UnitPart::core, UnitPart::after})
    ops += division.steps(segment.unit, pass, part);
  // The core's exchanges; its steps and exchanges once more; those of rows, and sums of pieces.
  const size_t ring = segment.unit == Unit::attn ? division.cp : 1;
  if (ring > 1) ops += pass == UnitPass::F ? ring - 1 : 2 * ring - 1;
  if (pass == UnitPass::I && lowering.recompute.core && segment.unit == Unit::attn) ops += 2 * ring - 1;
  return ops + weights + (division.overlaps() ? division.tp - 1 + kPipelineSteps : 0);
}

class Lowerer {
 public:
  Lowerer(Schedule schedule, const std::vector<int>& layers_per_stage, const Lowering& lowering)
      : lowering_(lowering), program_{.schedule = std::move(schedule), .layers_per_stage = layers_per_stage} {
    program_.sequence_parallel = lowering.sequence_parallel;
    program_.recompute = lowering.recompute;
    program_.zero = lowering.data_parallel && lowering.zero;
    program_.division = lowering.division();
    program_.offload = lowering.offload;
    program_.post_validation = lowering.post_validation;
    const Schedule& s = program_.schedule;
    for (int rank = 0; rank < s.pp(); ++rank) {
      program_.streams.push_back({StreamKind::compute, rank, -1});
      program_.streams.push_back({StreamKind::tp, rank, -1});
    }
    links_.resize(s.pp());
    // A layer is at least ten ops: refuse before the chains take that memory.
    if (std::accumulate(layers_per_stage.begin(), layers_per_stage.end(), size_t{0}) +
            lowering.vision_layers >
        kMaxOps / 10)
      refuse_size();
    for (int pass = 0; pass < 4; ++pass)
      for (int stage = 0; stage < s.placement.stages(); ++stage)
        chains_[pass].push_back(segments(static_cast<Pass>(pass), layers_per_stage[stage],
                                         stage + 1 == s.placement.stages(), lowering.backward,
                                         {lowering.embedding && stage == 0, lowering.recompute.layer,
                                          stage == 0 ? lowering.vision_layers : 0}));
    outputs_.assign(norm_key(OpKind::norm_total, s.pp()), {kNothing, kNothing});
  }

  Program lower() && {
    reserve();
    for (rank_ = 0; rank_ < program_.schedule.pp(); ++rank_) {
      program_.rank_begin.push_back(size());
      sends_before_.clear();
      reductions_.clear();
      last_scatter_ = final_compute_ = final_collective_ = kNothing;
      const auto& blocks = program_.schedule.ranks[rank_];
      gathers_.assign(program_.schedule.chunks(), kNothing);
      if (lowering_.post_validation) send_total();
      if (lowering_.data_parallel) count_backwards(blocks);
      if (program_.zero) gather_weights(blocks);
      if (program_.offload > 0) plan_offload(blocks);
      for (block_ = 0; block_ < static_cast<int>(blocks.size()); ++block_) {
        lower_block(blocks[block_]);
        add_reloads();
        if (program_.offload > 0) add_offloads();
        if (last_compute_ != kNothing) final_compute_ = last_compute_;
        if (last_all_reduce_ != kNothing) final_collective_ = last_all_reduce_;
        if (lowering_.data_parallel) reduce_gradients(blocks[block_]);
      }
      if (lowering_.tied) reduce_embedding();
      if (lowering_.post_validation) send_prefix();
      if (lowering_.optimizer) {
        begin_op();
        if (lowering_.post_validation)
          depend(prefix_of_ranks_before());
        else
          wait_for_gradients();
        program_.ops.push_back({.kind = OpKind::optimizer, .block = -1, .stream = compute_stream()});
      }
    }
    program_.rank_begin.push_back(size());
    resolve();
    return std::move(program_);
  }

 private:
  // An action's chain while it is being issued.
  struct Chain {
    Action action;
    int stage;
    const std::vector<Segment>* segments;
    Ref input;              // kNothing for W and for the first stage's F
    ValueId value;          // the chain's own
    ValueId source;         // the next input of its main line: another chain's value, then its own
    Ref reload = kNothing;  // what its first op waits for besides
    size_t taken = 0;       // segments issued
    Ref wait = kNothing;    // the collective that the next segment waits for
    Ref gathered_for_embedding = kNothing;
    Ref result = kNothing;    // the last op of the main line so far
    Ref computed = kNothing;  // the last compute op so far
  };

  [[nodiscard]] OpId size() const { return static_cast<OpId>(program_.ops.size()); }
  [[nodiscard]] uint32_t compute_stream() const { return 2 * rank_; }
  [[nodiscard]] uint32_t tp_stream() const { return 2 * rank_ + 1; }
  [[nodiscard]] int stages() const { return program_.schedule.placement.stages(); }

  // The output of `stage` for a microbatch: its activation, or, backward, its input's gradient.
  [[nodiscard]] Ref output_key(bool backward, int stage, int microbatch) const {
    const size_t index = (static_cast<size_t>(backward) * stages() + stage) * program_.schedule.microbatches;
    return kOutputBit | static_cast<Ref>(index + microbatch);
  }

  // Behind them, for the first and the last virtual stage: when its rank has all its gradients.
  [[nodiscard]] size_t ends_key() const {
    return 2 * static_cast<size_t>(stages()) * program_.schedule.microbatches;
  }

  // Behind these: a rank's transfers of the gradients' norm.
  [[nodiscard]] size_t norm_key(OpKind kind, int rank) const {
    const int ranks = program_.schedule.pp();
    return ends_key() + 2 + (kind == OpKind::norm_prefix ? 0 : ranks) + rank;
  }

  [[nodiscard]] Ref input_of(const Action& action, int stage) const {
    if (action.pass == Pass::W) return kNothing;
    if (action.pass == Pass::F)
      return stage == 0 ? kNothing : output_key(false, stage - 1, action.microbatch);
    const bool last = stage + 1 == stages();
    return last ? output_key(false, stage, action.microbatch)
                : output_key(true, stage + 1, action.microbatch);
  }

  // The chain's own value, and the first input of its main line. The input of W, which only the embedding's
  // gradient needs, is the output of the stage's own I.
  [[nodiscard]] ValueId value_of(const Action& action, int stage) const {
    const ValueKind kind = action.pass == Pass::F ? ValueKind::activation : ValueKind::gradient;
    return program_.value(kind, stage, action.microbatch);
  }
  [[nodiscard]] ValueId source_of(const Action& action, int stage) const {
    if (action.pass == Pass::W) return produced(true, stage, action.microbatch);
    if (action.pass == Pass::F) return produced(false, stage - 1, action.microbatch);
    return produced(true, stage + 1, action.microbatch);
  }
  // The output of `stage`: the value of the nearest chain, up to this stage, that has a segment.
  [[nodiscard]] ValueId produced(bool backward, int stage, int microbatch) const {
    const auto& chains = chains_[static_cast<int>(backward ? Pass::I : Pass::F)];
    while (stage >= 0 && stage < stages() && chains[stage].empty()) stage += backward ? 1 : -1;
    if (stage < 0 || stage == stages()) return kNoValue;
    return program_.value(backward ? ValueKind::gradient : ValueKind::activation, stage, microbatch);
  }

  // The value sent after a chain. Without an embedding no op makes what an empty first stage sends: it counts
  // as the stage's own.
  [[nodiscard]] ValueId sent(const Chain& chain) const {
    const ValueId made = produced(is_backward(chain.action.pass), chain.stage, chain.action.microbatch);
    return made == kNoValue ? chain.value : made;
  }

  [[noreturn]] static void refuse_size() {
    throw InputError("", "microbatches",
                     "the program would have more than " + std::to_string(kMaxOps) + " ops",
                     "use fewer microbatches, layers or ranks");
  }

  void reserve() {
    size_t ops = program_.schedule.pp() * (5 + 2 * static_cast<size_t>(program_.schedule.chunks())),
           depends = 0;
    for (int rank = 0; rank < program_.schedule.pp(); ++rank) {
      for (const Block& block : program_.schedule.ranks[rank]) {
        for (const Action& action : block.actions()) {
          const auto& chain = chain_of(action, program_.schedule.placement.stage(rank, action.chunk));
          size_t of_chain = 1;
          for (const Segment& segment : chain) of_chain += ops_of(segment, lowering_);
          ops += of_chain;
          depends += of_chain + chain.size() + 3;
          if (lowering_.offload > 0 && action.chunk == 0) ++ops, depends += 4;
        }
      }
      if (ops > kMaxOps) refuse_size();
    }
    program_.ops.reserve(ops);
    program_.depends_begin.reserve(ops + 1);
    program_.depends.reserve(depends);
  }

  [[nodiscard]] const std::vector<Segment>& chain_of(const Action& action, int stage) const {
    return chains_[static_cast<int>(action.pass)][stage];
  }

  void lower_block(const Block& block) {
    std::vector<Chain>& chains = block_chains_;
    chains.clear();
    for (const Action& action : block.actions()) {
      const int stage = program_.schedule.placement.stage(rank_, action.chunk);
      chains.push_back({action, stage, &chain_of(action, stage), input_of(action, stage),
                        value_of(action, stage), source_of(action, stage), reload_for(action)});
    }
    first_op_ = size();
    in_warm_up_ = !block.braided() && block.actions()[0].pass == Pass::F && block.actions()[0].chunk == 0;
    last_compute_ = last_all_reduce_ = kNothing;
    awaited_.clear();
    if (lowering_.sequence_parallel)
      for (Chain& chain : chains) gather_input(chain);
    if (chains.size() == 1) {
      while (issue_segment(chains[0])) {
      }
    } else if (lowering_.release == Release::released && both_forward(block) && !halves()) {
      while (issue_segment(chains[0])) {
      }
      chains[1].wait = chains[0].result;
      while (issue_segment(chains[1])) {
      }
    } else {
      for (const uint8_t next : braid(chains[0].segments->size(), chains[1].segments->size()))
        issue_segment(chains[next]);
    }
    send_outputs(chains, lowering_.release == Release::released && (both_forward(block) || halves()));
  }

  // Whether a block is the two halves of one microbatch.
  [[nodiscard]] bool halves() const { return lowering_.tp_overlap == TpOverlap::domino; }
  static bool both_forward(const Block& block) {
    return block.braided() && block.actions()[0].pass == Pass::F && block.actions()[1].pass == Pass::F;
  }

  const std::vector<uint8_t>& braid(size_t na, size_t nb) {
    auto& order = braids_[{na, nb}];
    if (order.empty()) order = static_braid(static_cast<int>(na), static_cast<int>(nb));
    return order;
  }

  // Issues the chain's next segment; false if there is none.
  bool issue_segment(Chain& chain) {
    if (chain.taken == chain.segments->size()) return false;
    const Segment& segment = (*chain.segments)[chain.taken];

    // An overlapped I begins with an exchange of rows, which waits as an all-gather in its place would.
    const bool ring = overlaps(segment, program_.division) && pass_of(segment) == UnitPass::I;
    const bool first = last_compute_ == kNothing;
    begin_main(chain, ring || first);
    if (ring)
      depend(chain.computed);
    else
      begin_compute(first);
    chain.result = add_main(chain, segment);
    chain.wait = kNothing;
    if (first) add_reloads();
    using Weights = Segment::Weights;
    if (segment.weights == Weights::early_before_late_behind) {
      begin_op();
      add_compute(chain, segment, OpKind::compute, UnitPass::W_early);
    }
    if (segment.all_reduce) chain.wait = chain.result = add_reduction(chain, segment, pieces(segment) - 1);
    if (segment.weights != Weights::none) {
      begin_op();
      const bool both = segment.weights == Weights::both_behind;
      add_compute(chain, segment, both ? OpKind::weight_gradients : OpKind::compute, UnitPass::W_late);
    }
    chain.computed = last_compute_;
    ++chain.taken;
    if (chain.taken < chain.segments->size() && gathers((*chain.segments)[chain.taken]) &&
        chain.action.pass != Pass::W) {
      begin_op();
      depend(last_compute_);
      last_all_reduce_ = chain.wait = add_gather(chain, (*chain.segments)[chain.taken]);
    }
    return true;
  }

  // The op on a segment's main line that comes first.
  void begin_main(Chain& chain, bool first_on_its_stream) {
    begin_op();
    wait_for_inputs(chain, first_on_its_stream);
    depend(chain.wait);
  }

  // Whether an all-gather precedes the segment.
  [[nodiscard]] bool gathers(const Segment& segment) const {
    return lowering_.sequence_parallel && segment.gathers && !overlaps(segment, program_.division);
  }
  // The pieces in which its output is summed.
  [[nodiscard]] int pieces(const Segment& segment) const {
    if (!in_parts(segment, program_.division)) return 1;
    return program_.division.steps(segment.unit, pass_of(segment), UnitPart::after);
  }

  // What a main line's first compute op waits for besides: its memory, and the last step's gradients' norm.
  void begin_compute(bool first_of_block) {
    if (first_of_block) wait_for_offloads();
    if (!in_warm_up_) depend(std::exchange(awaited_total_, kNothing));
  }

  // The sum over the group of what the last compute op made, the chain's value or a piece of it.
  OpId add_reduction(const Chain& chain, const Segment& segment, int piece) {
    begin_op();
    depend(last_compute_);
    const ValueId value = value_of(chain, segment);
    // Nothing uses the output of a recomputed layer.
    const bool unused = segment.recomputed && segment.unit == Unit::mlp, whole = pieces(segment) == 1;
    const bool last = piece + 1 == pieces(segment);
    last_all_reduce_ =
        add_op(chain, segment, lowering_.sequence_parallel ? OpKind::reduce_scatter : OpKind::all_reduce,
               pass_of(segment), tp_stream(), whole ? value : kNoValue, unused || !last ? kNoValue : value);
    if (!whole) set_part(last_all_reduce_, UnitPart::after, piece);
    if (lowering_.sequence_parallel) last_scatter_ = last_all_reduce_;
    return last_all_reduce_;
  }

  // The chain's first op waits for its input; where blocks are atomic, the block's first op on each stream
  // for all that the block waits for.
  void wait_for_inputs(Chain& chain, bool first_on_its_stream) {
    depend(std::exchange(chain.reload, kNothing));
    if (chain.action.pass == Pass::F) depend(std::exchange(gathers_[chain.action.chunk], kNothing));
    if (lowering_.release == Release::chain) {
      if (chain.result == kNothing && chain.wait == kNothing) depend(chain.input);
      return;
    }
    if (!first_on_its_stream) return;
    for (const Chain& each : block_chains_) depend(each.input);
    if (lowering_.release == Release::released)
      for (const Ref send : sends_before_) depend(send);
  }

  // With sequence parallelism, a chain's input from another chain is gathered before the block's first
  // segment. For W this is the input of the embedding's gradient.
  void gather_input(Chain& chain) {
    if (chain.segments->empty()) return;
    const bool split = chain.action.pass == Pass::W;
    const Segment& segment = split ? chain.segments->back() : chain.segments->front();
    if (!gathers(segment)) return;
    begin_op();
    wait_for_inputs(chain, size() == first_op_);
    if (split) depend(output_key(true, chain.stage, chain.action.microbatch));
    const OpId gather = add_gather(chain, segment);
    (split ? chain.gathered_for_embedding : chain.wait) = gather;
    last_all_reduce_ = gather;
  }

  // The all-gather of a segment's input.
  OpId add_gather(Chain& chain, const Segment& segment) {
    const ValueId from = source_of(chain, segment), to = value_of(chain, segment);
    return add_op(chain, segment, OpKind::all_gather, pass_of(segment), tp_stream(), from, to);
  }

  // The value that a segment's main line works on.
  [[nodiscard]] ValueId value_of(const Chain& chain, const Segment& segment) const {
    if (segment.recomputed)
      return program_.value(ValueKind::recomputed, chain.stage, chain.action.microbatch);
    return chain.value;
  }
  // A segment's input, a value of another chain or its own; from then on it is its own. A recomputed layer
  // begins with its own saved input.
  ValueId source_of(Chain& chain, const Segment& segment) const {
    if (segment.recomputed) return segment.unit == Unit::attn ? kNoValue : value_of(chain, segment);
    return std::exchange(chain.source, chain.value);
  }

  // The compute op on a segment's main line.
  OpId add_main(Chain& chain, const Segment& segment) {
    const bool samples = !has_pass(segment.unit, UnitPass::I), head = segment.unit == Unit::head;
    const bool behind_vision = segment.unit == Unit::embedding && lowering_.vision_layers > 0;
    const bool gathered = gathers(segment);
    if (segment.main == Segment::Main::weight_gradients) {
      // Behind a vision encoder the embedding's gradient is of what the backward gets, not of what it leaves.
      if (!samples || behind_vision)
        return add_compute(chain, segment, OpKind::weight_gradients, UnitPass::W_late);
      if (chain.action.pass == Pass::W)
        depend(gathered ? chain.gathered_for_embedding
                        : output_key(true, chain.stage, chain.action.microbatch));
      const ValueId from = gathered ? chain.value : source_of(chain, segment);
      return add_compute(chain, segment, OpKind::weight_gradients, UnitPass::W_late, from);
    }
    const ValueId own = value_of(chain, segment);
    if (head && segment.main == Segment::Main::input_gradient) {
      chain.source = chain.value;
      return add_compute(chain, segment, OpKind::compute, UnitPass::I, kNoValue, own);
    }
    const bool begins = samples && !behind_vision;
    const ValueId from = gathered ? own : begins ? kNoValue : source_of(chain, segment);
    if (begins) chain.source = chain.value;
    if (in_parts(segment, program_.division)) return add_parts(chain, segment, from, own);
    return add_compute(chain, segment, OpKind::compute, pass_of(segment), from, head ? kNoValue : own);
  }

  // F or I of a unit in parts, after begin_main(); the last sum of an output's pieces is not among them. The
  // own gradients of keys and values come back with the last exchange.
  OpId add_parts(Chain& chain, const Segment& segment, ValueId from, ValueId to) {
    const UnitPass pass = pass_of(segment);
    if (overlaps(segment, program_.division))
      add_ring(chain, segment, from);
    else
      add_part(chain, segment, {UnitPart::before, pass}, from);
    if (pass == UnitPass::I && segment.unit == Unit::attn && lowering_.recompute.core)
      add_core(chain, segment, UnitPass::F);
    const Ref home = add_core(chain, segment, pass);
    for (int piece = 0; piece + 1 < pieces(segment); ++piece) {
      begin_op();
      add_part(chain, segment, {UnitPart::after, pass, piece});
      add_reduction(chain, segment, piece);
    }
    begin_op();
    depend(home);
    return add_part(chain, segment, {UnitPart::after, pass, pieces(segment) - 1}, kNoValue,
                    pieces(segment) == 1 ? to : kNoValue);
  }

  // The part before the core, with an exchange of rows beside each step but the last. The first exchange
  // sends the own rows: in F the norm's output, in I the chain's input.
  void add_ring(Chain& chain, const Segment& segment, ValueId from) {
    const UnitPass pass = pass_of(segment);
    Ref norm = kNothing, brought = kNothing;  // what the next step waits for
    if (pass == UnitPass::F) norm = add_part(chain, segment, {UnitPart::norm, pass}, from);
    const int steps = program_.division.steps(segment.unit, pass, UnitPart::before);
    for (int step = 0; step < steps; ++step) {
      const Ref needed = brought;
      const bool begins = step == 0 && pass == UnitPass::I;
      if (step + 1 < steps) {
        if (!begins) begin_op();
        if (step == 0) depend(norm);
        brought = add_op(chain, segment, OpKind::row_exchange, pass, tp_stream(), begins ? from : kNoValue);
        set_part(brought, UnitPart::whole, step + 1);
      }
      if (begins) {
        const bool first = last_compute_ == kNothing;
        begin_main(chain, first);
        begin_compute(first);
      } else {
        begin_op();
      }
      depend(needed);
      add_part(chain, segment, {UnitPart::before, pass, step});
    }
  }

  // An exchange brings what the next step works on, beside the step before that, and takes over the buffer of
  // the one before. The gradients that a step makes leave with the exchange behind it; the last brings the
  // own ones home, and is returned.
  Ref add_core(const Chain& chain, const Segment& segment, UnitPass pass) {
    const int steps = program_.division.steps(segment.unit, pass, UnitPart::core);
    Ref brought = kNothing;  // what the next step waits for
    for (int step = 0; step < steps; ++step) {
      const Ref needed = brought;
      if (step + 1 < steps) brought = add_exchange(chain, segment, OpKind::kv_exchange, pass, step + 1);
      if (pass == UnitPass::I && step > 0)
        add_exchange(chain, segment, OpKind::kv_gradient_exchange, pass, step);
      begin_op();
      depend(needed);
      add_part(chain, segment, {UnitPart::core, pass, step});
    }
    if (pass == UnitPass::F || steps == 1) return kNothing;
    return add_exchange(chain, segment, OpKind::kv_gradient_exchange, pass, steps);
  }

  struct Part {
    UnitPart part;
    UnitPass pass;
    int step = 0;
  };
  OpId add_part(const Chain& chain, const Segment& segment, const Part& part, ValueId input = kNoValue,
                ValueId output = kNoValue) {
    const OpId op = add_compute(chain, segment, OpKind::compute, part.pass, input, output);
    set_part(op, part.part, part.step);
    return op;
  }
  void set_part(OpId op, UnitPart part, int step) {
    program_.ops[op].part = part;
    program_.ops[op].step = static_cast<int16_t>(step);
  }

  OpId add_exchange(const Chain& chain, const Segment& segment, OpKind kind, UnitPass pass, int step) {
    begin_op();
    depend(last_compute_);
    const OpId op = add_op(chain, segment, kind, pass, stream_of_rank(StreamKind::cp, -1));
    set_part(op, UnitPart::whole, step);
    return op;
  }

  // The outputs of the block's chains: to the consumer's rank by a transfer, or directly if it is this rank.
  void send_outputs(const std::vector<Chain>& chains, bool merge) {
    sends_before_.clear();
    for (size_t i = 0; i < chains.size(); ++i) {
      const Chain& chain = chains[i];
      const bool backward = is_backward(chain.action.pass);
      if (chain.action.pass == Pass::W) continue;
      if (backward && chain.stage == 0) {  // for the embedding's gradient, where W makes it
        outputs_[output_key(true, 0, chain.action.microbatch) & ~kOutputBit] = {
            chain.segments->empty() ? chain.input : chain.result, kNothing};
        continue;
      }
      const bool last = !backward && chain.stage + 1 == stages();
      const int consumer = last ? chain.stage : chain.stage + (backward ? -1 : 1);
      const int receiver = program_.schedule.placement.rank_of(consumer);
      const Ref key = output_key(backward, chain.stage, chain.action.microbatch);
      if (receiver == rank_) {
        outputs_[key & ~kOutputBit] = result_of(chain, chains);
        continue;
      }
      begin_op();
      for (const Ref ref : result_of(chain, chains)) depend(ref);
      const bool merged = merge && i == 0 && chains[1].stage == chain.stage;
      program_.ops.push_back({.kind = OpKind::transfer,
                              .unit = {},
                              .unit_pass = {},
                              .pass = chain.action.pass,
                              .chunk = chain.action.chunk,
                              .layer = 0,
                              .microbatch = chain.action.microbatch,
                              .block = block_,
                              .stream = link_to(receiver),
                              .input = sent(chain),
                              .output = merged ? sent(chains[1]) : kNoValue});
      outputs_[key & ~kOutputBit] = {size() - 1, kNothing};
      sends_before_.push_back(size() - 1);
      if (merged) {
        const Ref other = output_key(backward, chain.stage, chains[1].action.microbatch);
        outputs_[other & ~kOutputBit] = {size() - 1, kNothing};
        break;
      }
    }
  }

  // Dependencies of the chain's output. A chain without segments passes its input on.
  [[nodiscard]] std::array<Ref, 2> result_of(const Chain& chain, const std::vector<Chain>& chains) const {
    if (lowering_.release == Release::chain)
      return {chain.segments->empty() ? chain.input : chain.result, kNothing};
    if (last_compute_ != kNothing) return {last_compute_, last_all_reduce_};
    return {chains[0].input, chains.size() > 1 ? chains[1].input : kNothing};
  }

  uint32_t link_to(int receiver) { return stream_of_rank(StreamKind::p2p, receiver); }

  // A stream of this rank other than its first two, made when it is first used.
  uint32_t stream_of_rank(StreamKind kind, int peer) {
    for (const uint32_t stream : links_[rank_])
      if (program_.streams[stream].kind == kind && program_.streams[stream].peer == peer) return stream;
    program_.streams.push_back({kind, rank_, peer});
    links_[rank_].push_back(static_cast<uint32_t>(program_.streams.size() - 1));
    return links_[rank_].back();
  }

  void count_backwards(const std::vector<Block>& blocks) {
    backwards_left_.assign(program_.schedule.chunks(), 0);
    for (const Block& block : blocks)
      for (const Action& action : block.actions())
        if (ends_life(action.pass)) ++backwards_left_[action.chunk];
  }

  // Once a chunk's last weight gradients are issued, its gradients are reduced: behind the block's last
  // compute op and, with sequence parallelism, the last reduce-scatter, which makes gradients of norm gains.
  void reduce_gradients(const Block& block) {
    for (const Action& action : block.actions()) {
      if (!ends_life(action.pass) || --backwards_left_[action.chunk] > 0 || !has_weights(action.chunk))
        continue;
      begin_op();
      depend(last_compute_);
      depend(last_scatter_);
      reductions_.push_back(size());
      add_of_chunk(program_.zero ? OpKind::gradient_scatter : OpKind::gradient_reduce, action,
                   StreamKind::dp);
    }
  }

  // The optimizer of the step before has changed each replica's share of the weights: they are gathered in
  // the order in which the chunks' first forwards need them.
  void gather_weights(const std::vector<Block>& blocks) {
    std::vector<bool> seen(program_.schedule.chunks(), false);
    for (block_ = 0; block_ < static_cast<int>(blocks.size()); ++block_)
      for (const Action& action : blocks[block_].actions()) {
        if (action.pass != Pass::F || seen[action.chunk]) continue;
        seen[action.chunk] = true;
        if (!has_weights(action.chunk)) continue;
        begin_op();
        gathers_[action.chunk] = size();
        add_of_chunk(OpKind::weight_gather, action, StreamKind::dp);
      }
  }

  // ---- offload ----

  void plan_offload(const std::vector<Block>& blocks) {
    to_offload_.clear();
    to_reload_.clear();
    copies_.clear();
    copying_.clear();
    const int stage = program_.schedule.placement.stage(rank_, 0);
    if (program_.layers_per_stage[stage] == 0) return;
    to_reload_ = offloaded_activations(blocks);
    std::reverse(to_reload_.begin(), to_reload_.end());
    for (const OffloadedActivation& each : to_reload_) to_offload_[each.backward.microbatch] = each;
  }

  // Behind the block of their forwards.
  void add_offloads() {
    for (const Chain& chain : block_chains_) {
      const Action& action = chain.action;
      if (action.pass != Pass::F || action.chunk != 0 || !to_offload_.contains(action.microbatch)) continue;
      begin_op();
      depend(chain.computed);
      copies_[action.microbatch] = size();
      copying_.push_back({to_offload_.at(action.microbatch).freed_at(), size()});
      add_of_chunk(OpKind::offload, action, StreamKind::d2h);
    }
  }

  // The first compute op of a block frees the memory of what has had its time to be copied.
  void wait_for_offloads() {
    std::erase_if(copying_, [&](const Copying& each) {
      if (each.freed_at > block_) return false;
      depend(each.offload);
      awaited_.push_back(each.offload);
      return true;
    });
  }

  // Beside the block in front of that of their backwards, behind its first compute op: when all memory freed
  // until then is free.
  void add_reloads() {
    for (; !to_reload_.empty() && to_reload_.back().reloaded_at() == block_; to_reload_.pop_back()) {
      const Action& backward = to_reload_.back().backward;
      Ref& copy = copies_.at(backward.microbatch);
      begin_op();
      depend(copy);
      depend(final_compute_);
      depend(final_collective_);
      for (const OpId offload : awaited_) depend(offload);
      copy = size();
      add_of_chunk(OpKind::reload, backward, StreamKind::h2d);
    }
  }

  [[nodiscard]] Ref reload_for(const Action& action) const {
    if (action.chunk != 0 || !is_backward(action.pass)) return kNothing;
    return copies_.contains(action.microbatch) ? copies_.at(action.microbatch) : kNothing;
  }

  [[nodiscard]] bool has_weights(int chunk) const {
    const int stage = program_.schedule.placement.stage(rank_, chunk);
    return program_.layers_per_stage[stage] > 0 || stage == 0 || stage + 1 == stages();
  }

  // Of the whole chunk of an action.
  void add_of_chunk(OpKind kind, const Action& action, StreamKind stream) {
    program_.ops.push_back({.kind = kind,
                            .unit = {},
                            .unit_pass = {},
                            .pass = action.pass,
                            .chunk = action.chunk,
                            .layer = 0,
                            .microbatch = action.microbatch,
                            .block = block_,
                            .stream = stream_of_rank(stream, -1)});
  }

  void wait_for_gradients() {
    for (const OpId reduction : reductions_) depend(reduction);
    if (reductions_.empty()) depend(last_scatter_);
  }

  // Post-validation. The sum over all ranks of the last step's squares is on the last one, and goes back
  // while the pipeline fills; a rank needs it before its first action that is not a forward of chunk 0.
  void send_total() {
    const int last = program_.schedule.pp() - 1;
    awaited_total_ =
        rank_ == last ? kNothing : kOutputBit | static_cast<Ref>(norm_key(OpKind::norm_total, rank_ + 1));
    if (rank_ == 0) return;
    begin_op();
    depend(awaited_total_);
    add_norm_transfer(OpKind::norm_total, rank_ - 1);
  }
  // The sum so far goes from rank to rank; each takes its step when it has that of the ranks before.
  void send_prefix() {
    begin_op();
    wait_for_gradients();
    program_.ops.push_back({.kind = OpKind::gradient_norm, .block = -1, .stream = compute_stream()});
    if (rank_ + 1 == program_.schedule.pp()) return;
    begin_op();
    depend(size() - 1);
    depend(prefix_of_ranks_before());
    add_norm_transfer(OpKind::norm_prefix, rank_ + 1);
  }
  [[nodiscard]] Ref prefix_of_ranks_before() const {
    return rank_ == 0 ? kNothing : kOutputBit | static_cast<Ref>(norm_key(OpKind::norm_prefix, rank_ - 1));
  }
  void add_norm_transfer(OpKind kind, int receiver) {
    outputs_[norm_key(kind, rank_)] = {size(), kNothing};
    program_.ops.push_back({.kind = kind, .block = -1, .stream = link_to(receiver)});
  }

  // Once the ranks of the first and the last virtual stage have all their gradients, they add up those of the
  // embedding, of which each has a copy.
  void reduce_embedding() {
    const Placement& placement = program_.schedule.placement;
    const int first = placement.rank_of(0), last = placement.rank_of(stages() - 1);
    if (first == last || (rank_ != first && rank_ != last)) return;
    outputs_[ends_key() + (rank_ == last ? 1 : 0)] = reductions_.empty()
                                                         ? std::array{final_compute_, last_scatter_}
                                                         : std::array{reductions_.back(), kNothing};
    begin_op();
    for (const size_t end : {0, 1}) depend(kOutputBit | static_cast<Ref>(ends_key() + end));
    reductions_.push_back(size());
    program_.ops.push_back({.kind = OpKind::embedding_reduce,
                            .unit = Unit::embedding,
                            .unit_pass = {},
                            .pass = {},
                            .chunk = 0,
                            .layer = 0,
                            .microbatch = 0,
                            .block = -1,
                            .stream = stream_of_rank(StreamKind::dp, -1)});
  }

  // An op is written as begin_op(), its dependencies, then the op itself.
  void begin_op() { program_.depends_begin.push_back(static_cast<uint32_t>(program_.depends.size())); }
  void depend(Ref ref) {
    if (ref != kNothing) program_.depends.push_back(ref);
  }
  OpId add_op(const Chain& chain, const Segment& segment, OpKind kind, UnitPass pass, uint32_t stream,
              ValueId input = kNoValue, ValueId output = kNoValue) {
    program_.ops.push_back({.kind = kind,
                            .unit = segment.unit,
                            .unit_pass = pass,
                            .pass = chain.action.pass,
                            .chunk = chain.action.chunk,
                            .layer = segment.layer,
                            .microbatch = chain.action.microbatch,
                            .block = block_,
                            .stream = stream,
                            .input = input,
                            .output = output});
    return size() - 1;
  }
  OpId add_compute(const Chain& chain, const Segment& segment, OpKind kind, UnitPass pass,
                   ValueId input = kNoValue, ValueId output = kNoValue) {
    return last_compute_ = add_op(chain, segment, kind, pass, compute_stream(), input, output);
  }

  // Replaces outputs of stages by the ops that make them, now that all are known.
  void resolve() {
    resolved_for_.assign(outputs_.size(), kNothing);
    std::vector<OpId> resolved;
    resolved.reserve(program_.depends.size());
    program_.depends_begin.push_back(static_cast<uint32_t>(program_.depends.size()));
    size_t begin = 0;
    for (size_t op = 0; op < program_.ops.size(); ++op) {
      const size_t end = program_.depends_begin[op + 1];
      program_.depends_begin[op] = static_cast<uint32_t>(resolved.size());
      for (size_t i = begin; i < end; ++i) resolve(program_.depends[i], static_cast<OpId>(op), resolved);
      begin = end;
    }
    program_.depends_begin.back() = static_cast<uint32_t>(resolved.size());
    program_.depends = std::move(resolved);
  }
  // An output is visited once per op: chains without segments pass on outputs of others, often the same one.
  void resolve(Ref ref, OpId op, std::vector<OpId>& resolved) {
    if (ref == kNothing) return;
    if ((ref & kOutputBit) == 0) return resolved.push_back(ref);
    const Ref output = ref & ~kOutputBit;
    if (resolved_for_[output] == op) return;
    resolved_for_[output] = op;
    for (const Ref part : outputs_[output]) resolve(part, op, resolved);
  }

  const Lowering lowering_;
  Program program_;
  std::array<std::vector<std::vector<Segment>>, 4> chains_;           // by pass and stage
  std::map<std::pair<size_t, size_t>, std::vector<uint8_t>> braids_;  // by the lengths of the two chains
  std::vector<std::array<Ref, 2>> outputs_;                           // by output key: what to wait for
  std::vector<OpId> resolved_for_;            // by output key: the last op whose dependencies named it
  std::vector<std::vector<uint32_t>> links_;  // by rank: its streams besides the first two

  // The rank and the block that are being lowered.
  int rank_ = 0;
  int block_ = 0;
  std::vector<Chain> block_chains_;
  OpId first_op_ = 0;
  Ref last_compute_ = kNothing, last_all_reduce_ = kNothing;
  std::vector<Ref> sends_before_;
  std::vector<int> backwards_left_;                             // by chunk: B and W not issued yet
  Ref last_scatter_ = kNothing;                                 // the rank's latest reduce-scatter
  Ref final_compute_ = kNothing, final_collective_ = kNothing;  // the rank's latest
  std::vector<OpId> reductions_;
  std::vector<Ref> gathers_;      // by chunk: of its weights, until its first forward waits for it
  bool in_warm_up_ = true;        // whether the block is a forward of chunk 0 alone
  Ref awaited_total_ = kNothing;  // with post-validation, until an action behind the warm-up waits for it

  struct Copying {
    int freed_at;  // a block
    OpId offload;
  };
  std::map<int, OffloadedActivation> to_offload_;  // by microbatch
  std::vector<OffloadedActivation> to_reload_;     // the next one last
  std::map<int, Ref> copies_;                      // by microbatch: its offload, then its reload
  std::vector<Copying> copying_;                   // offloads that no op waits for yet
  std::vector<OpId> awaited_;                      // those that the block waits for
};

}  // namespace

Program lower(Schedule schedule, const std::vector<int>& layers_per_stage, const Lowering& lowering) {
  const int stages = schedule.placement.stages();
  if (static_cast<int>(layers_per_stage.size()) != stages)
    throw InputError("", "layers_per_chunk",
                     "has " + std::to_string(layers_per_stage.size()) + " entries, but " + schedule.name +
                         " has " + std::to_string(schedule.pp()) + " ranks of " +
                         std::to_string(schedule.chunks()) + " chunk(s)",
                     "write " + std::to_string(stages) + " entries, one per virtual stage");
  for (const int layers : layers_per_stage)
    if (layers < 0 || layers > INT16_MAX)
      throw InputError("", "layers_per_chunk", std::to_string(layers) + " is out of range",
                       "write numbers from 0 to " + std::to_string(INT16_MAX));
  if (lowering.vision_layers > 0 && (stages < 2 || layers_per_stage.front() > 0))
    throw InputError("", "layers_per_chunk",
                     stages < 2 ? "has one entry, but the vision encoder is a virtual stage of its own"
                                : "begins with " + std::to_string(layers_per_stage.front()) +
                                      ", but the first virtual stage is the vision encoder's",
                     stages < 2 ? "use more ranks or chunks" : "begin with 0");
  if (lowering.braid == BraidPolicy::sequential) schedule = sequential_braids(std::move(schedule));
  if (lowering.tp_overlap == TpOverlap::domino) schedule = split_microbatches(std::move(schedule));
  return Lowerer(std::move(schedule), layers_per_stage, lowering).lower();
}

}  // namespace stp
