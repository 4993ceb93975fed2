#include "stp/program/lower.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>

#include "stp/base/error.h"
#include "stp/program/builder.h"
#include "stp/program/chain_values.h"
#include "stp/program/offload.h"
#include "stp/program/send_waits.h"
#include "stp/program/step_ops.h"
#include "stp/program/unit_ops.h"
#include "stp/program/vocabulary_ops.h"

namespace stp {
namespace {

// The program without its ops.
Program begun(Schedule schedule, const std::vector<int>& layers_per_stage, const Lowering& lowering) {
  Program program{.schedule = std::move(schedule), .layers_per_stage = layers_per_stage};
  program.strategy = lowering.strategy;
  program.strategy.zero = lowering.data_parallel && lowering.strategy.zero;
  program.vision_layers = lowering.vision_layers;
  const bool whole = (lowering.one_bucket_of_several_chunks && program.schedule.chunks() > 1) ||
                     program.vocabulary != Vocabulary::whole;
  if (lowering.data_parallel && !whole)
    program.first_buckets = fill_buckets(
        units_of_chunk(layers_per_stage.front(),
                       {lowering.embedding, program.schedule.placement.depth() == 1, lowering.vision_layers}),
        lowering.buckets);
  return program;
}

class Lowerer {
 public:
  Lowerer(Schedule schedule, const std::vector<int>& layers_per_stage, const Lowering& lowering)
      : lowering_(lowering), b_(begun(std::move(schedule), layers_per_stage, lowering)) {
    // A layer is at least ten ops: refuse before the chains take that memory.
    if (std::accumulate(layers_per_stage.begin(), layers_per_stage.end(), size_t{0}) +
            lowering.vision_layers >
        kMaxOps / 10)
      refuse_size();
    const bool whole = vocabulary_.whole();
    for (const Pass pass : {Pass::F, Pass::I, Pass::W, Pass::B})
      for (int stage = 0; stage < stages(); ++stage)
        chains(pass).push_back(
            segments(pass, layers_per_stage[stage], whole && b_.is_last(stage), lowering.backward,
                     {whole && lowering.embedding && b_.is_first(stage), lowering.strategy.recompute,
                      b_.is_first(stage) ? lowering.vision_layers : 0}));
    if (whole) return;
    for (const Pass pass : {Pass::S, Pass::T, Pass::U, Pass::E, Pass::G})
      chains(pass).push_back(vocabulary_segments(pass, vocabulary_.vocabulary()));
  }

  Program lower() && {
    reserve();
    for (int rank = 0; rank < schedule().pp(); ++rank) {
      b_.begin_rank(rank);
      sends_.begin_rank();
      step_.begin_rank();
      offload_.begin_rank();
      written_.clear();
      const auto& blocks = schedule().ranks[rank];
      for (int block = 0; block < static_cast<int>(blocks.size()); ++block) {
        b_.begin_block(block);
        offload_.begin_block();
        sends_.begin_block(blocks[block]);
        vocabulary_.begin_block(blocks[block]);
        lower_or_copy(blocks[block]);
        sends_.end_block();
        offload_.add_reloads();
        for (const Chain& chain : block_chains_) offload_.end_action(chain.action, chain.computed);
        b_.end_block();
        step_.end_block(blocks[block]);
      }
      step_.end_rank();
    }
    return std::move(b_).finish();
  }

 private:
  // An action's chain while it is being issued.
  struct Chain {
    Action action;
    int stage;
    const std::vector<Segment>* segments;
    Ref input;              // kNothing for W, and for F of the first stage
    ValueId value;          // the chain's own
    ValueId source;         // the next input of its main line: another chain's value, then its own
    Ref reload = kNothing;  // its first op and first compute op wait for this
    size_t taken = 0;       // segments issued
    Ref wait = kNothing;    // the collective that the next segment waits for
    Ref gathered_for_embedding = kNothing;
    Ref result = kNothing;    // the last op of the main line so far
    Ref computed = kNothing;  // the last compute op so far
  };

  [[nodiscard]] const Schedule& schedule() const { return b_.program.schedule; }
  [[nodiscard]] int stages() const { return b_.stages(); }

  [[nodiscard]] Ref input_of(const Action& action) const {
    const auto decided = action.pass == Pass::W ? std::nullopt : vocabulary_.input_of(action);
    return decided ? *decided : b_.input_of(action);
  }

  [[noreturn]] static void refuse_size() {
    throw InputError("", "microbatches",
                     "the program would have more than " + std::to_string(kMaxOps) + " ops",
                     "use fewer microbatches, layers or ranks");
  }

  void reserve() {
    size_t ops = schedule().pp() * (5 + 2 * static_cast<size_t>(schedule().chunks())), depends = 0;
    ops += 2 * b_.program.first_buckets.size();
    std::array<std::vector<size_t>, kPasses>
        ops_of_chains;  // by pass and stage: the most ops, and a transfer
    for (size_t pass = 0; pass < chains_.size(); ++pass)
      for (const std::vector<Segment>& chain : chains_[pass]) {
        ops_of_chains[pass].push_back(1);
        for (const Segment& segment : chain)
          ops_of_chains[pass].back() += ops_of(segment, lowering_.strategy);
      }
    for (int rank = 0; rank < schedule().pp(); ++rank) {
      for (const Block& block : schedule().ranks[rank]) {
        for (const Action& action : block.actions()) {
          const int stage = schedule().placement.stage(rank, action.chunk);
          const size_t of_chain =
              ops_of_chains[static_cast<size_t>(action.pass)][is_of_vocabulary(action.pass) ? 0 : stage];
          ops += of_chain;
          depends += of_chain + chain_of(action, stage).size() + 3;
          if (lowering_.strategy.offload > 0) ++ops, depends += 4;
        }
      }
      if (ops > kMaxOps) refuse_size();
    }
    b_.program.ops.reserve(ops);
    b_.program.on_stream.reserve(ops);
    b_.program.depends_begin.reserve(ops + 1);
    b_.program.depends.reserve(depends);
  }

  [[nodiscard]] const std::vector<Segment>& chain_of(const Action& action, int stage) const {
    return chains_[static_cast<size_t>(action.pass)][is_of_vocabulary(action.pass) ? 0 : stage];
  }

  // Of blocks of the same passes on the same chunks, the first may wait for what comes once a step: gathers
  // of weights, the gradients' norm. The second is copied, unless blocks wait for earlier ones' sends or
  // offloads.
  void lower_or_copy(const Block& block) {
    const bool alone = lowering_.release == Release::chain || lowering_.release == Release::block;
    if (!alone || lowering_.strategy.offload > 0 || !vocabulary_.whole()) return lower_block(block);
    const auto found =
        std::ranges::find_if(written_, [&](const WrittenBlock& other) { return alike(other.block, block); });
    const bool is_new = found == written_.end();
    if (!is_new && found->is_second) return b_.copy(*found, block);
    WrittenBlock& written = is_new ? written_.emplace_back() : *found;
    written = {block, b_.size(), 0, depends_size(), 0, {}, !is_new};
    lower_block(block);
    written.end = b_.size();
    written.depends_end = depends_size();
    written.latest = b_.latest;
  }
  [[nodiscard]] uint32_t depends_size() const { return static_cast<uint32_t>(b_.program.depends.size()); }
  static bool alike(const Block& a, const Block& b) {
    return std::ranges::equal(a.actions(), b.actions(), [](const Action& one, const Action& other) {
      return one.pass == other.pass && one.chunk == other.chunk;
    });
  }

  void lower_block(const Block& block) {
    std::vector<Chain>& chains = block_chains_;
    chains.clear();
    for (const Action& action : block.actions()) {
      const int stage = b_.stage(action);
      chains.push_back({action, stage, &chain_of(action, stage), input_of(action), values_.of(action, stage),
                        values_.source_of(action, stage), offload_.reload_for(action)});
    }
    first_op_ = b_.size();
    in_warm_up_ = !block.braided() && block.actions()[0].pass == Pass::F && block.actions()[0].chunk == 0;
    if (lowering_.strategy.sequence_parallel)
      for (Chain& chain : chains) gather_input(chain);
    if (chains.size() == 1) {
      while (issue_segment(chains[0])) {
      }
    } else if (published_trainer() && both_forward(block) && !halves()) {
      while (issue_segment(chains[0])) {
      }
      if (chains[0].result != kNothing) chains[1].wait = chains[0].result;  // behind its own all-gather
      while (issue_segment(chains[1])) {
      }
    } else {
      const std::vector<BraidStep>& order = braid(*chains[0].segments, *chains[1].segments);
      gathers_behind_barriers_ = lowering_.braid == BraidPolicy::paired;
      for (size_t i = 0; i < order.size(); ++i) {
        if (order[i].barrier) {
          barrier_ = {b_.latest.compute, b_.latest.collective};
          if (gathers_behind_barriers_)  // all gathers until the next barrier
            for (size_t k = i; k < order.size() && (k == i || !order[k].barrier); ++k)
              if (chains[order[k].chain].taken > 0) gather_next(chains[order[k].chain]);
        }
        issue_segment(chains[order[i].chain]);
      }
      gathers_behind_barriers_ = false;
    }
    send_outputs(chains, published_trainer() && (both_forward(block) || halves()));
  }

  [[nodiscard]] bool published_trainer() const {
    return lowering_.release == Release::released || lowering_.release == Release::blocking;
  }
  // Whether a block is the two halves of one microbatch.
  [[nodiscard]] bool halves() const { return lowering_.strategy.tp_overlap == TpOverlap::domino; }
  static bool both_forward(const Block& block) {
    return block.braided() && block.actions()[0].pass == Pass::F && block.actions()[1].pass == Pass::F;
  }

  const std::vector<BraidStep>& braid(const std::vector<Segment>& a, const std::vector<Segment>& b) {
    auto& order = braids_[{&a, &b}];
    if (!order.empty()) return order;
    return order = is_by_times(lowering_.braid)
                       ? lowering_.order(a, b)
                       : static_braid(static_cast<int>(a.size()), static_cast<int>(b.size()));
  }

  // Issues the chain's next segment; false if there is none.
  bool issue_segment(Chain& chain) {
    if (chain.taken == chain.segments->size()) return false;
    const Segment& segment = (*chain.segments)[chain.taken];
    const SegmentOf of{chain.action, segment};

    // An overlapped I begins with an exchange of rows, which has the dependencies of an all-gather. No
    // compute op waits for that exchange alone, so the first one waits for the reload, too.
    const bool ring = units_.overlaps(segment) && pass_of(segment) == UnitPass::I;
    const bool first = b_.latest.compute == kNothing;
    const Ref reload = chain.reload;
    begin_main(chain, ring || first);
    if (ring) {
      b_.depend(chain.computed);
      chain.reload = reload;
    } else {
      begin_compute(first);
    }
    chain.result = add_main(chain, segment);
    chain.wait = kNothing;
    if (first) offload_.add_reloads();
    using Weights = Segment::Weights;
    if (segment.weights == Weights::early_before_late_behind) {
      b_.begin_op();
      units_.add_compute(of, OpKind::compute, UnitPass::W_early);
    }
    if (segment.all_reduce)
      chain.wait = chain.result = units_.add_last_reduction(of, value_of(chain, segment));
    if (segment.weights != Weights::none) {
      b_.begin_op();
      const bool both = segment.weights == Weights::both_behind;
      units_.add_compute(of, both ? OpKind::weight_gradients : OpKind::compute, UnitPass::W_late);
    }
    chain.computed = b_.latest.compute;
    ++chain.taken;
    if (!gathers_behind_barriers_) gather_next(chain);
    return true;
  }

  // The all-gather before the next segment, if it has one.
  void gather_next(Chain& chain) {
    if (chain.taken == chain.segments->size() || !gathers((*chain.segments)[chain.taken]) ||
        chain.action.pass == Pass::W)
      return;
    b_.begin_op();
    b_.depend(b_.latest.compute);
    wait_for_weights(chain);
    b_.latest.collective = chain.wait = add_gather(chain, (*chain.segments)[chain.taken]);
  }

  // Begins the first op on a segment's main line.
  void begin_main(Chain& chain, bool first_on_its_stream) {
    b_.begin_op();
    wait_for_inputs(chain, first_on_its_stream);
    b_.depend(chain.wait);
    for (Ref& each : barrier_) b_.depend(std::exchange(each, kNothing));
  }

  // Whether an all-gather precedes the segment.
  [[nodiscard]] bool gathers(const Segment& segment) const {
    return lowering_.strategy.sequence_parallel && segment.gathers && !units_.overlaps(segment);
  }
  // Adds the other dependencies of a main line's first compute op: memory, last step's gradient norm.
  void begin_compute(bool first_of_block) {
    if (first_of_block) offload_.wait_for_offloads();
    if (!in_warm_up_) b_.depend(step_.take_total());
  }

  // In the first forward, waits for the weights of the next segment.
  void wait_for_weights(const Chain& chain) {
    if (chain.action.pass == Pass::F) {
      const Segment& next = (*chain.segments)[chain.taken];
      b_.depend(step_.take_weights(chain.action.chunk, next.unit, next.layer));
    }
  }

  // The chain's first op waits for its input. With atomic blocks, the block's first op on each stream waits
  // for all inputs of the block.
  void wait_for_inputs(Chain& chain, bool first_on_its_stream) {
    b_.depend(std::exchange(chain.reload, kNothing));
    wait_for_weights(chain);
    if (lowering_.release == Release::chain) {
      if (chain.result == kNothing && chain.wait == kNothing) b_.depend(chain.input);
      return;
    }
    if (!first_on_its_stream) return;
    for (const Chain& each : block_chains_) b_.depend(each.input);
    sends_.for_each([&](Ref send) { b_.depend(send); });
  }

  // With sequence parallelism, a chain's input from another chain is gathered before the block's first
  // segment. For W this is the input of the embedding's gradient.
  void gather_input(Chain& chain) {
    if (chain.segments->empty()) return;
    const bool split = chain.action.pass == Pass::W;
    const Segment& segment = split ? chain.segments->back() : chain.segments->front();
    if (!gathers(segment)) return;
    b_.begin_op();
    wait_for_inputs(chain, b_.size() == first_op_);
    if (split) b_.depend(b_.output_of(true, chain.stage, chain.action.microbatch));
    const OpId gather = add_gather(chain, segment);
    (split ? chain.gathered_for_embedding : chain.wait) = gather;
    b_.latest.collective = gather;
  }

  // Adds the all-gather of a segment's input.
  OpId add_gather(Chain& chain, const Segment& segment) {
    const ValueId from = source_of(chain, segment), to = value_of(chain, segment);
    return units_.add({chain.action, segment}, OpKind::all_gather, pass_of(segment), b_.tp_stream(), from,
                      to);
  }

  // The value that a segment's main line works on.
  [[nodiscard]] ValueId value_of(const Chain& chain, const Segment& segment) const {
    if (segment.recomputed)
      return b_.program.value(ValueKind::recomputed, chain.stage, chain.action.microbatch);
    return chain.value;
  }
  // A segment's input, a value of another chain or its own; from then on it is its own. A recomputed layer
  // begins with its own saved input.
  ValueId source_of(Chain& chain, const Segment& segment) const {
    if (segment.recomputed) return begins_layer(segment.unit) ? kNoValue : value_of(chain, segment);
    return std::exchange(chain.source, chain.value);
  }

  // Adds the compute op on a segment's main line.
  OpId add_main(Chain& chain, const Segment& segment) {
    const SegmentOf of{chain.action, segment};
    const bool samples = !has_pass(segment.unit, UnitPass::I), head = segment.unit == Unit::head;
    const bool behind_vision = segment.unit == Unit::embedding && lowering_.vision_layers > 0;
    const bool gathered = gathers(segment);
    if (segment.main == Segment::Main::weight_gradients) {
      // Behind a vision encoder the embedding's gradient needs the gradient that enters the stage. B takes
      // that gradient and hands the images' rows on to the merger; W uses the copy that I kept.
      if (behind_vision && chain.action.pass == Pass::B)
        return units_.add_compute(of, OpKind::weight_gradients, UnitPass::W_late, source_of(chain, segment),
                                  chain.value);
      if (!samples || behind_vision)
        return units_.add_compute(of, OpKind::weight_gradients, UnitPass::W_late);
      if (chain.action.pass == Pass::W)
        b_.depend(gathered ? chain.gathered_for_embedding
                           : b_.output_of(true, chain.stage, chain.action.microbatch));
      const ValueId from = gathered ? chain.value : source_of(chain, segment);
      return units_.add_compute(of, OpKind::weight_gradients, UnitPass::W_late, from);
    }
    const ValueId own = value_of(chain, segment);
    if (head && segment.main == Segment::Main::input_gradient) {
      chain.source = chain.value;
      return units_.add_compute(of, OpKind::compute, UnitPass::I, kNoValue, own);
    }
    const bool begins = samples && !behind_vision;
    const ValueId from = gathered ? own : begins ? kNoValue : source_of(chain, segment);
    if (begins) chain.source = chain.value;
    if (!units_.in_parts(segment))
      return units_.add_compute(of, OpKind::compute, pass_of(segment), from, head ? kNoValue : own);
    return units_.add_parts(of, from, own, [&] {
      const bool first = b_.latest.compute == kNothing;
      begin_main(chain, first);
      begin_compute(first);
    });
  }

  // Sends the outputs of the block's chains: by a transfer to the consumer's rank, or directly on this rank.
  void send_outputs(const std::vector<Chain>& chains, bool merge) {
    for (size_t i = 0; i < chains.size(); ++i) {
      const Chain& chain = chains[i];
      const bool backward = is_backward(chain.action.pass);
      if (chain.action.pass == Pass::W) continue;
      if (vocabulary_.take_output(chain.action, result_of(chain, chains),
                                  values_.sent(chain.action, chain.stage)))
        continue;
      if (backward && b_.is_first(chain.stage)) {  // for the embedding's gradient, where W makes it
        b_.set_output(b_.output_of(true, chain.stage, chain.action.microbatch),
                      {chain.segments->empty() ? chain.input : chain.result, kNothing});
        continue;
      }
      const bool last = !backward && b_.is_last(chain.stage);
      const int consumer = last ? chain.stage : chain.stage + (backward ? -1 : 1);
      const int receiver = schedule().placement.rank_of(consumer);
      const Ref output = b_.output_of(backward, chain.stage, chain.action.microbatch);
      if (receiver == b_.rank) {
        b_.set_output(output, result_of(chain, chains));
        continue;
      }
      b_.begin_op();
      for (const Ref ref : result_of(chain, chains)) b_.depend(ref);
      const bool merged = merge && i == 0 && chains[1].stage == chain.stage;
      const OpId transfer = b_.add_of_chunk(
          OpKind::transfer, chain.action, b_.link_to(receiver), values_.sent(chain.action, chain.stage),
          merged ? values_.sent(chains[1].action, chains[1].stage) : kNoValue);
      b_.set_output(output, {transfer, kNothing});
      sends_.add(transfer);
      if (merged) {
        b_.set_output(b_.output_of(backward, chain.stage, chains[1].action.microbatch), {transfer, kNothing});
        break;
      }
    }
  }

  // Dependencies of the chain's output. A chain without segments passes its input on.
  [[nodiscard]] std::array<Ref, 2> result_of(const Chain& chain, const std::vector<Chain>& chains) const {
    if (lowering_.release == Release::chain)
      return {chain.segments->empty() ? chain.input : chain.result, kNothing};
    if (b_.latest.compute != kNothing) return {b_.latest.compute, b_.latest.collective};
    return {chains[0].input, chains.size() > 1 ? chains[1].input : kNothing};
  }

  std::vector<std::vector<Segment>>& chains(Pass pass) { return chains_[static_cast<size_t>(pass)]; }

  const Lowering lowering_;
  ProgramBuilder b_;
  UnitOps units_{lowering_, b_};
  StepOps step_{lowering_, b_};
  OffloadOps offload_{lowering_.copies, b_};
  SendWaits sends_{lowering_.release, schedule().chunks()};
  VocabularyOps vocabulary_{b_};
  std::vector<WrittenBlock> written_;  // of the rank, by passes and chunks
  Chains chains_;
  const ChainValues values_{b_, chains_, vocabulary_};
  std::map<std::pair<const std::vector<Segment>*, const std::vector<Segment>*>, std::vector<BraidStep>>
      braids_;  // by the two chains

  // State of the block that is being lowered.
  std::vector<Chain> block_chains_;
  OpId first_op_ = 0;
  std::array<Ref, 2> barrier_{kNothing, kNothing};  // the next segment waits for these
  bool gathers_behind_barriers_ = false;            // else at the end of the segment before
  bool in_warm_up_ = true;                          // the block is a forward of chunk 0 alone
};

Schedule as_it_runs(Schedule schedule, const Lowering& lowering) {
  if (lowering.braid == BraidPolicy::sequential) schedule = sequential_braids(std::move(schedule));
  if (lowering.strategy.tp_overlap == TpOverlap::domino) schedule = split_microbatches(std::move(schedule));
  return schedule;
}

}  // namespace

Program outline(Schedule schedule, const std::vector<int>& layers_per_stage, const Lowering& lowering) {
  const auto lists = schedule.ranks.size() + 1;
  return {.schedule = as_it_runs(std::move(schedule), lowering),
          .layers_per_stage = layers_per_stage,
          .strategy = lowering.strategy,
          .rank_begin = std::vector<OpId>(lists, 0)};
}

Program lower(Schedule schedule, const std::vector<int>& layers_per_stage, const Lowering& lowering) {
  check_lowering(schedule, layers_per_stage, lowering);
  return Lowerer(as_it_runs(std::move(schedule), lowering), layers_per_stage, lowering).lower();
}

}  // namespace stp
