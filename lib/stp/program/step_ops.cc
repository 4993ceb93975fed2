#include "stp/program/step_ops.h"

#include <algorithm>
#include <utility>

namespace stp {
namespace {

bool makes_gradients(Pass pass) { return ends_life(pass) || is_of_vocabulary(pass); }

}  // namespace

StepOps::StepOps(const Lowering& lowering, ProgramBuilder& builder)
    : lowering_(lowering), b_(builder), gradients_(b_.new_outputs(b_.program.schedule.pp())) {}

void StepOps::begin_rank() {
  const int chunks = b_.program.schedule.chunks();
  reductions_.clear();
  gathers_.assign(chunks, {});
  if (lowering_.strategy.post_validation) send_total();
  if (!lowering_.data_parallel) return;
  backwards_left_.assign(chunks, 0);
  for (const Block& block : b_.program.schedule.ranks[b_.rank])
    for (const Action& action : block.actions())
      if (makes_gradients(action.pass)) ++backwards_left_[action.chunk];
  if (lowering_.strategy.zero) gather_weights();
}

std::span<const Bucket> StepOps::buckets(int chunk) const {
  return b_.program.buckets(b_.program.schedule.placement.stage(b_.rank, chunk));
}

OpId StepOps::add_of_bucket(OpKind kind, const Action& action, size_t bucket) {
  const OpId op = b_.add_of_chunk(kind, action, b_.stream(StreamKind::dp));
  b_.program.ops[op].step = static_cast<int16_t>(bucket);
  return op;
}

// The optimizer of the step before has changed each replica's share of the weights. Gathers are in the order
// in which the chunks' first forwards need them; buckets are in the order of the backward.
void StepOps::gather_weights() {
  std::vector<bool> seen(gathers_.size(), false);
  b_.block = 0;
  for (const Block& block : b_.program.schedule.ranks[b_.rank]) {
    for (const Action& action : block.actions()) {
      if (action.pass != Pass::F || seen[action.chunk]) continue;
      seen[action.chunk] = true;
      if (!has_weights(action)) continue;
      std::vector<Ref>& gathers = gathers_[action.chunk];
      gathers.resize(std::max<size_t>(buckets(action.chunk).size(), 1));
      for (size_t bucket = gathers.size(); bucket-- > 0;) {
        b_.begin_op();
        gathers[bucket] = add_of_bucket(OpKind::weight_gather, action, bucket);
      }
    }
    ++b_.block;
  }
}

// The reduction of a whole chunk waits for the rank's last compute op, since a block of a chunk without
// layers may have none, and, with sequence parallelism, for the last reduce-scatter, which makes gradients of
// norm gains.
void StepOps::end_block(const Block& block) {
  if (!lowering_.data_parallel) return;
  const OpKind kind = lowering_.strategy.zero ? OpKind::gradient_scatter : OpKind::gradient_reduce;
  for (const Action& action : block.actions()) {
    if (!makes_gradients(action.pass) || --backwards_left_[action.chunk] > 0 || !has_weights(action))
      continue;
    const std::span<const Bucket> of_chunk = buckets(action.chunk);
    for (size_t bucket = 0; bucket < of_chunk.size(); ++bucket) {
      b_.begin_op();
      depend_on_gradients(of_chunk[bucket], action.chunk);
      reductions_.push_back(add_of_bucket(kind, action, bucket));
    }
    if (!of_chunk.empty()) continue;
    b_.begin_op();
    b_.depend(b_.latest.rank_compute);
    b_.depend(b_.latest.scatter);
    reductions_.push_back(b_.add_of_chunk(kind, action, b_.stream(StreamKind::dp)));
  }
}

// Depends on the rank's last op of each stream that adds to a gradient of the bucket.
void StepOps::depend_on_gradients(const Bucket& bucket, int chunk) {
  bool computed = false, scattered = !lowering_.strategy.sequence_parallel;
  for (OpId id = b_.size(); id-- > b_.program.rank_begin.back() && !(computed && scattered);) {
    const Op& op = b_.program.ops[id];
    const bool weights = op.kind == OpKind::weight_gradients ||
                         (op.kind == OpKind::compute && op.unit_pass == UnitPass::W_late);
    const bool gains = op.kind == OpKind::reduce_scatter && op.unit_pass == UnitPass::I;
    bool* const found = weights ? &computed : gains ? &scattered : nullptr;
    if (found == nullptr || *found || op.chunk != chunk || !bucket.has(op.unit, op.layer)) continue;
    *found = true;
    b_.depend(id);
  }
}

void StepOps::end_rank() {
  if (lowering_.tied) reduce_embedding();
  if (b_.program.schedule.placement.pipelines() > 1) reduce_over_pipelines();
  if (lowering_.strategy.post_validation) send_prefix();
  if (!lowering_.optimizer) return;
  b_.begin_op();
  if (lowering_.strategy.post_validation)
    b_.depend(prefix_of_ranks_before());
  else
    wait_for_gradients();
  b_.add({.kind = OpKind::optimizer, .block = -1}, b_.compute_stream());
}

Ref StepOps::take_weights(int chunk, Unit unit, int layer) {
  std::vector<Ref>& gathers = gathers_[chunk];
  if (gathers.empty()) return kNothing;
  const std::span<const Bucket> of_chunk = buckets(chunk);
  size_t bucket = 0;
  while (bucket < of_chunk.size() && !of_chunk[bucket].has(unit, layer)) ++bucket;
  return std::exchange(gathers.at(bucket), kNothing);
}
Ref StepOps::take_total() { return std::exchange(total_, kNothing); }

bool StepOps::has_weights(const Action& action) const {
  const int stage = b_.stage(action);
  return b_.program.layers_per_stage[stage] > 0 || b_.program.has_embedding(stage) ||
         b_.program.has_head(stage);
}

void StepOps::wait_for_gradients() {
  for (const OpId reduction : reductions_) b_.depend(reduction);
  if (reductions_.empty()) b_.depend(b_.latest.scatter);
}

// The last rank has the sum of the last step's squares over all ranks. It goes back while the pipeline fills;
// a rank needs it before its first action that is not a forward of chunk 0.
void StepOps::send_total() {
  const int last = b_.program.schedule.pp() - 1;
  total_ = b_.rank == last ? kNothing : b_.norm_of(OpKind::norm_total, b_.rank + 1);
  if (b_.rank == 0) return;
  b_.begin_op();
  b_.depend(total_);
  add_norm_transfer(OpKind::norm_total, b_.rank - 1);
}

// Sends the sum so far to the next rank. A rank takes its step when it has the sum of the ranks before.
void StepOps::send_prefix() {
  b_.begin_op();
  wait_for_gradients();
  const OpId own = b_.add({.kind = OpKind::gradient_norm, .block = -1}, b_.compute_stream());
  if (b_.rank + 1 == b_.program.schedule.pp()) return;
  b_.begin_op();
  b_.depend(own);
  b_.depend(prefix_of_ranks_before());
  add_norm_transfer(OpKind::norm_prefix, b_.rank + 1);
}

Ref StepOps::prefix_of_ranks_before() const {
  return b_.rank == 0 ? kNothing : b_.norm_of(OpKind::norm_prefix, b_.rank - 1);
}

void StepOps::add_norm_transfer(OpKind kind, int receiver) {
  const OpId op = b_.add({.kind = kind, .block = -1}, b_.link_to(receiver));
  b_.set_output(b_.norm_of(kind, b_.rank), {op, kNothing});
}

// What all gradients of the rank wait for.
std::array<Ref, 2> StepOps::gradients() const {
  return reductions_.empty() ? std::array{b_.latest.rank_compute, b_.latest.scatter}
                             : std::array{reductions_.back(), kNothing};
}

// The chunks of rank p − 1 − r are copies of those of rank r.
void StepOps::reduce_over_pipelines() {
  b_.set_output(gradients_ + b_.rank, gradients());
  b_.begin_op();
  b_.depend(gradients_ + b_.rank);
  b_.depend(gradients_ + b_.program.schedule.pp() - 1 - b_.rank);
  reductions_.push_back(b_.add({.kind = OpKind::pipeline_reduce, .block = -1}, b_.stream(StreamKind::dp)));
}

// When the ranks of the first and the last virtual stage have all their gradients, they sum the gradients of
// the embedding, of which each has a copy.
void StepOps::reduce_embedding() {
  const Placement& placement = b_.program.schedule.placement;
  const int first = placement.rank_of(0), last = placement.rank_of(b_.stages() - 1);
  if (first == last || (b_.rank != first && b_.rank != last)) return;
  b_.set_output(b_.gradients_of_end(b_.rank == last ? 1 : 0), gradients());
  b_.begin_op();
  for (const int end : {0, 1}) b_.depend(b_.gradients_of_end(end));
  reductions_.push_back(b_.add({.kind = OpKind::embedding_reduce, .unit = Unit::embedding, .block = -1},
                               b_.stream(StreamKind::dp)));
}

}  // namespace stp
