#include "stp/runtime/exchanges.h"

#include "stp/model/components.h"

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

// An all-to-all turns this rank's rows of all heads into all rows of its own heads, or back. `from` and `to`
// may be one tensor.
struct HeadExchange {
  Tensor &from, &to;
  std::vector<int64_t> widths;  // of q's, k's and v's columns, of all heads
  bool gathers;                 // all rows
};

HeadExchange head_exchange(const UnitContext& context, const Op& op, SavedUnit& saved) {
  const AttentionShape shape = context.attention_shape();
  const int64_t q = shape.q_columns(), kv = shape.kv_columns();
  const bool forward = op.unit_pass == UnitPass::F, gathers = op.step == 1;
  if (op.exchange == Exchange::qkv) {
    Tensor& both = saved[forward ? Saved::qkv : Saved::inner_gradient];
    return {both, both, {q, kv, kv}, gathers};
  }
  if (forward) return {saved[Saved::core_output], saved[Saved::attention_output], {q}, gathers};
  return {saved[Between::core_gradient], saved[Between::core_gradient], {q}, gathers};
}

// Copies each rank's block of one of the two tensors to `blocks`, or back: of this rank's rows its share of
// the heads, of this rank's heads its two pieces of each sequence.
void copy_blocks(const UnitContext& context, Stream& stream, const HeadExchange& exchange,
                 const Tensor& tensor, const Tensor& blocks, bool back) {
  const int64_t tokens = context.tokens(), own_seq = context.own_seq(), rows = own_seq / 2;
  const bool of_rows = exchange.gathers != back;
  for (int rank = 0; rank < context.cp(); ++rank) {
    const Tensor block = blocks.part(rank * tokens * blocks.columns, tokens, blocks.columns);
    int64_t width_before = 0;
    for (size_t i = 0; of_rows && i < exchange.widths.size(); ++i) {
      const int64_t width = exchange.widths[i], share = width / context.cp(),
                    in_block = width_before / context.cp(), in_rows = width_before + rank * share;
      if (back)
        context.copy_columns(stream, block, in_block, tensor, in_rows, share);
      else
        context.copy_columns(stream, tensor, in_rows, block, in_block, share);
      width_before += width;
    }
    for (int64_t row = 0; !of_rows && row < tokens; row += rows) {
      const int64_t first =
          row / own_seq * context.training.seq + position_of(context.cp(), rank, own_seq, row % own_seq);
      const Tensor whole = tensor.part(first * block.columns, rows, block.columns),
                   piece = block.part(row * block.columns, rows, block.columns);
      context.issue(stream, kernel::Copy{.from = back ? piece : whole, .to = back ? whole : piece});
    }
  }
}

ExchangeTensors heads_to_send(const UnitContext& context, Stream& stream, const Op& op, SavedUnit& saved) {
  const HeadExchange exchange = head_exchange(context, op, saved);
  const int64_t rows = context.tokens() * context.cp(), columns = exchange.from.elements() / rows;
  const Tensor sent = context.make(stream, MemoryKind::working, rows, columns);
  copy_blocks(context, stream, exchange, exchange.from, sent, false);
  return {sent, context.make(stream, MemoryKind::communication, rows, columns)};
}

// This rank's own block stays where it is.
void place_heads(const UnitContext& context, Stream& stream, const Op& op, const ExchangeTensors& tensors,
                 SavedUnit& saved) {
  const HeadExchange exchange = head_exchange(context, op, saved);
  const auto& [from, to, widths, gathers] = exchange;
  const int64_t rows = gathers ? tensors.sent.rows : context.tokens();
  const Tensor all = &from == &to ? from : context.make(stream, from.memory->kind, from.rows, from.columns);
  to = all.part(0, rows, all.elements() / rows);
  copy_blocks(context, stream, exchange, to, tensors.received, true);
}

}  // namespace

ExchangeTensors exchange_tensors(const UnitContext& context, Stream& stream, const Op& op, SavedUnit& saved) {
  if (op.exchange == Exchange::rows) return row_exchange_tensors(context, stream, op, saved);
  if (rule_of(op.exchange).all_to_all) return heads_to_send(context, stream, op, saved);
  const AttentionShape shape = context.attention_shape();
  const int64_t columns = 2 * shape.kv_columns();
  if (op.exchange == Exchange::kv && op.step == 1) {
    release_kv(context, stream, saved);  // of a recomputed core
    saved[OfSteps::kv].assign(context.cp(), {});
    saved[OfSteps::kv][0] = context.make(stream, MemoryKind::working, context.tokens(), columns);
    context.copy_columns(stream, saved[Saved::qkv], shape.q_columns(), saved[OfSteps::kv][0], 0, columns);
  } else if (op.exchange == Exchange::kv) {
    // The step before last is done, and its keys and values were sent on.
    context.device.release(stream, saved[OfSteps::kv][op.step - 2]);
  }
  const Tensor received = context.make(stream, MemoryKind::communication, context.tokens(), columns);
  if (op.exchange == Exchange::kv) {
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
  if (rule_of(op.exchange).all_to_all) {
    place_heads(context, stream, op, tensors, saved);
    context.device.release(stream, tensors.sent);
    context.device.release(stream, tensors.received);
  }
  // The step that works on the keys and values just sent may still read them.
  if (op.exchange == Exchange::kv_gradients)
    context.device.release(stream, saved[OfSteps::kv_gradients][op.step - 1]);
}

}  // namespace stp
