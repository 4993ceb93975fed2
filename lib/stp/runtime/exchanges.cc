#include "stp/runtime/exchanges.h"

#include <utility>

namespace stp {
namespace {

// Weight gradients need all rows of the output's gradient, so this rank's rows are copied to them.
ExchangeTensors row_exchange_tensors(const UnitContext& context, Stream& stream, const Op& op,
                                     SavedUnit& saved) {
  const bool forward = op.unit_pass == UnitPass::F;
  Tensor& all = forward ? saved[Between::ring] : saved[Saved::output_gradient];
  const Tensor& own = forward ? saved[Saved::norm_output] : saved[Between::residual];
  if (op.step == 1)
    all = context.make(stream, forward ? MemoryKind::working : MemoryKind::saved, context.tokens(),
                       own.columns);
  if (op.step == 1 && !forward)
    context.issue(stream, kernel::Copy{.from = own, .to = context.rows_of_step(all, 0)});
  return {op.step == 1 ? own : context.rows_of_step(all, op.step - 1), context.rows_of_step(all, op.step)};
}

// The two tensors of an all-to-all: this rank's rows of all heads, and all rows of this rank's share of the
// heads. One becomes the other; if they are one tensor, it happens in its memory.
struct HeadExchange {
  Tensor &own_rows, &own_heads;
  std::vector<int64_t>
      widths;    // in own_rows, of the columns that are divided among the ranks, each for itself
  bool gathers;  // it makes own_heads, not own_rows
};

HeadExchange head_exchange(const UnitContext& context, const Op& op, SavedUnit& saved) {
  const AttentionShape shape = context.attention_shape();
  const std::vector<int64_t> q{shape.q_columns()}, qkv{q[0], shape.kv_columns(), shape.kv_columns()};
  const bool gathers = op.step == 1;
  if (op.unit_pass == UnitPass::F)
    return gathers ? HeadExchange{saved[Saved::qkv], saved[Saved::qkv], qkv, true}
                   : HeadExchange{saved[Saved::attention_output], saved[Saved::core_output], q, false};
  return gathers ? HeadExchange{saved[Between::core_gradient], saved[Between::core_gradient], q, true}
                 : HeadExchange{saved[Saved::inner_gradient], saved[Saved::inner_gradient], qkv, false};
}

// Copies `rank`'s share of the heads of this rank's rows to its block, or back.
void copy_heads(const UnitContext& context, Stream& stream, const std::vector<int64_t>& widths,
                const Tensor& own_rows, const Tensor& block, int rank, bool to_block) {
  int64_t in_rows = 0, in_block = 0;
  for (const int64_t width : widths) {
    const int64_t share = width / context.cp(), from = in_rows + rank * share;
    if (to_block)
      context.copy_columns(stream, own_rows, from, block, in_block, share);
    else
      context.copy_columns(stream, block, in_block, own_rows, from, share);
    in_rows += width;
    in_block += share;
  }
}

// Copies `rank`'s two pieces of each whole sequence to its block, or back.
void copy_pieces(const UnitContext& context, Stream& stream, const Tensor& own_heads, const Tensor& block,
                 int rank, bool to_block) {
  const int64_t own_seq = context.own_seq(), rows = own_seq / 2, columns = block.columns;
  for (int64_t sample = 0; sample < context.training.microbatch_size; ++sample)
    for (const int64_t row : {int64_t{0}, rows}) {
      const int64_t position = position_of(context.cp(), rank, own_seq, row);
      const Tensor whole =
                       own_heads.part((sample * context.training.seq + position) * columns, rows, columns),
                   piece = block.part((sample * own_seq + row) * columns, rows, columns);
      context.issue(stream, kernel::Copy{.from = to_block ? whole : piece, .to = to_block ? piece : whole});
    }
}

// The block of `all`, a tensor of an all-to-all, for or from `rank`.
Tensor block_of(const UnitContext& context, const Tensor& all, int rank) {
  return all.part(rank * context.tokens() * all.columns, context.tokens(), all.columns);
}

ExchangeTensors heads_to_send(const UnitContext& context, Stream& stream, const Op& op, SavedUnit& saved) {
  const HeadExchange exchange = head_exchange(context, op, saved);
  const Tensor& from = exchange.gathers ? exchange.own_rows : exchange.own_heads;
  const int64_t rows = context.tokens() * context.cp(), columns = from.elements() / rows;
  const Tensor sent = context.make(stream, MemoryKind::working, rows, columns);
  for (int rank = 0; rank < context.cp(); ++rank) {
    const Tensor block = block_of(context, sent, rank);
    if (exchange.gathers)
      copy_heads(context, stream, exchange.widths, from, block, rank, true);
    else
      copy_pieces(context, stream, from, block, rank, true);
  }
  return {sent, context.make(stream, MemoryKind::communication, rows, columns)};
}

// This rank's own block stays where it is.
void place_heads(const UnitContext& context, Stream& stream, const Op& op, const ExchangeTensors& tensors,
                 SavedUnit& saved) {
  const HeadExchange exchange = head_exchange(context, op, saved);
  Tensor& from = exchange.gathers ? exchange.own_rows : exchange.own_heads;
  Tensor& to = exchange.gathers ? exchange.own_heads : exchange.own_rows;
  const int64_t rows = exchange.gathers ? tensors.sent.rows : context.tokens();
  const Tensor all = &from == &to ? from : context.make(stream, from.memory->kind, from.rows, from.columns);
  to = all.part(0, rows, all.elements() / rows);
  for (int rank = 0; rank < context.cp(); ++rank) {
    const Tensor block = block_of(context, tensors.received, rank);
    if (exchange.gathers)
      copy_pieces(context, stream, to, block, rank, false);
    else
      copy_heads(context, stream, exchange.widths, to, block, rank, false);
  }
}

}  // namespace

ExchangeTensors exchange_tensors(const UnitContext& context, Stream& stream, const Op& op, SavedUnit& saved) {
  if (op.kind == OpKind::row_exchange) return row_exchange_tensors(context, stream, op, saved);
  if (op.kind == OpKind::all_to_all) return heads_to_send(context, stream, op, saved);
  const AttentionShape shape = context.attention_shape();
  const int64_t columns = 2 * shape.kv_columns();
  if (op.kind == OpKind::kv_exchange && op.step == 1) {
    release_kv(context, stream, saved);  // of a recomputed core
    saved[OfSteps::kv].assign(context.cp(), {});
    saved[OfSteps::kv][0] = context.make(stream, MemoryKind::working, context.tokens(), columns);
    context.copy_columns(stream, saved[Saved::qkv], shape.q_columns(), saved[OfSteps::kv][0], 0, columns);
  } else if (op.kind == OpKind::kv_exchange) {
    // The step before last is done, and its keys and values were sent on.
    context.device.release(stream, saved[OfSteps::kv][op.step - 2]);
  }
  const Tensor received = context.make(stream, MemoryKind::communication, context.tokens(), columns);
  if (op.kind == OpKind::kv_exchange) {
    saved[OfSteps::kv][op.step] = received;
    return {saved[OfSteps::kv][op.step - 1], received};
  }
  Tensor &gradient = saved[OfSteps::kv_gradients][op.step - 1], &sum = saved[OfSteps::kv_sums][op.step - 1];
  if (sum) {
    context.issue(stream, kernel::AddRows{.in = sum, .first = 0, .out = gradient});
    context.device.release(stream, sum);
  }
  saved[OfSteps::kv_sums][op.step] = received;
  return {gradient, received};
}

void finish_exchange(const UnitContext& context, Stream& stream, const Op& op, ExchangeTensors tensors,
                     SavedUnit& saved) {
  if (op.kind == OpKind::all_to_all) {
    place_heads(context, stream, op, tensors, saved);
    context.device.release(stream, tensors.sent);
    context.device.release(stream, tensors.received);
  }
  // The step that works on the keys and values just sent may still read them.
  if (op.kind == OpKind::kv_gradient_exchange)
    context.device.release(stream, saved[OfSteps::kv_gradients][op.step - 1]);
}

}  // namespace stp
