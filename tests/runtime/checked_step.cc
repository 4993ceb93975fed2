#include "runtime/checked_step.h"

#include <optional>

#include "stp/base/error.h"
#include "stp/cost/memory.h"
#include "stp/model/components.h"
#include "support/saved_memory.h"

namespace stp {

using namespace testing_support;

namespace {

// Payload: a gather's input and a transfer of sequence parallelism are a share of the rows.
Traffic declared_traffic(const Program& program, int rank, const ModelConfig& model, const Shape& shape) {
  Traffic traffic;
  const double tensor = hidden_bytes(model, shape);
  const double share = shape.strategy.sequence_parallel ? tensor / shape.strategy.tp : tensor;
  const auto add = [](int64_t& to, double bytes) { to += static_cast<int64_t>(bytes); };
  for (OpId id = program.rank_begin[rank]; id < program.rank_begin[rank + 1]; ++id) {
    const Op& op = program.ops[id];
    if (op.kind == OpKind::all_reduce && shape.strategy.tp > 1)
      add(traffic.all_reduce_bytes, reduced_bytes(model, shape, op.unit, op.unit_pass));
    if (op.kind == OpKind::reduce_scatter)
      add(traffic.reduce_scatter_bytes, op.part == UnitPart::after ? tensor / kPipelineSteps : tensor);
    if (op.kind == OpKind::all_gather) add(traffic.all_gather_bytes, share);
    if (op.kind == OpKind::transfer) add(traffic.sent_bytes, op.tensors() * share);
    if (is_norm_transfer(op.kind)) add(traffic.sent_bytes, sizeof(double));
    if (op.kind != OpKind::exchange) continue;
    const double bytes = exchange_bytes(model, shape, op.exchange);
    const int cp = shape.strategy.cp;
    add(traffic.exchanged_bytes, rule_of(op.exchange).all_to_all ? bytes * (cp - 1) / cp : bytes);
  }
  // Of all pipeline ranks: a tensor, and with S's sum the maximum, the sum and the target's logit of a token.
  for (const Op& op : program.ops) {
    if (!is_of_all_stages(op.kind) || shape.strategy.pp == 1) continue;
    if (op.output != kNoValue) add(traffic.all_reduce_bytes, share);
    if (op.kind == OpKind::vocabulary_reduce && op.pass == Pass::S)
      add(traffic.all_reduce_bytes, 3 * shape.tokens() * std::max(4, shape.element_bytes));
  }
  return traffic;
}

// Elements of the parameters of a rank, in as many shares as replicas have their own: layers, and the tables
// and the last norm where they are; tied tables in buckets of their own. Each parameter begins at a multiple
// of 128; a chunk's shares are alike.
double declared_parameters(const Program& program, int rank, const ModelConfig& model, int tp, int shares) {
  const auto of = [&](Unit unit) {
    const bool shared = unit == Unit::head || unit == Unit::embedding;
    const int shards = tp * (shared ? program.vocabulary_ranks() : 1);
    int64_t elements = 0;
    for (const Parameter& parameter : unit_parameters(model, unit))
      if (!(model.tied() && parameter.parts[0].name == "embedding.weight"))
        elements += (parameter.local_rows(shards) * parameter.columns(shards) + 127) / 128 * 128;
    return elements;
  };
  int64_t sum = 0;
  const auto add = [&](int64_t elements) {
    const int64_t pieces = int64_t{128} * shares;
    sum += (elements + pieces - 1) / pieces * pieces;
  };
  for (int chunk = 0; chunk < program.schedule.chunks(); ++chunk) {
    const int stage = program.schedule.placement.stage(rank, chunk);
    for (const bool end :
         {program.schedule.placement.is_first(stage), program.schedule.placement.is_last(stage)})
      if (end && model.tied()) add((int64_t{model.vocab} / tp * model.hidden + 127) / 128 * 128);
    for (const Bucket& bucket : program.buckets(stage)) {
      int64_t elements = 0;
      for (const UnitOfChunk& unit : bucket.units) elements += of(unit.unit);
      add(elements);
    }
    if (!program.buckets(stage).empty()) continue;
    int64_t elements = program.layers_per_stage[stage] * (of(Unit::attn) + of(Unit::mlp));
    if (program.has_embedding(stage))
      elements += of(Unit::embedding) + of(Unit::patches) + of(Unit::merger) +
                  model.vision.layers * (of(Unit::vision_attn) + of(Unit::vision_mlp));
    if (program.has_head(stage)) elements += of(Unit::head);
    add(elements);
  }
  return static_cast<double>(sum);
}

}  // namespace

void expect_declared_bytes(Trainer& trainer, const GridTraining& training, const Variant& variant) {
  const Program& program = trainer.program();
  const ModelConfig& model = training.model;
  Shape shape = shape_of(training, variant);
  shape.shares_vocabulary = shares_vocabulary(program.schedule);
  const auto saved = peak_saved_bytes(program, model, shape, Implementation::suite);
  const Job job{model, shape, Implementation::suite};
  const auto host = peak_host_bytes(program, activation_bytes(job, program.layers_per_stage));
  const int shares = variant.zero ? training.grid.cp * training.grid.dp : 1;
  const auto element = static_cast<double>(bytes_of(training.type)),
             state = static_cast<double>(bytes_of(statistics_type(training.type)));
  const int states = training.type == DType::bf16 ? 3 : 2;  // two moments, and the master
  double optimizer = states * state;
  if (variant.post_validation) optimizer = 2 * optimizer + element;  // copies, of the weights too
  for (const RankUse& use : trainer.use()) {
    const int rank = training.grid.place(use.world_rank).pp;
    SCOPED_TRACE("world rank " + std::to_string(use.world_rank));
    const auto held = [&](const char* kind) { return static_cast<double>(use.peak_bytes.at(kind)); };
    EXPECT_EQ(held("saved"), saved[rank]);
    EXPECT_EQ(held("host"), host[rank]);
    expect_same_traffic(use.traffic, declared_traffic(program, rank, model, shape));
    const double parameters = declared_parameters(program, rank, model, training.grid.tp, shares);
    EXPECT_EQ(held("weights"), element * parameters);
    EXPECT_EQ(held("gradients"), state * parameters);
    EXPECT_EQ(held("optimizer"), optimizer * parameters / shares);
  }
}

void expect_step(const Case& c, DType type, const Variant& variant, const std::vector<int>& layers) {
  std::optional<Schedule> schedule;
  try {
    schedule =
        make_schedule(find_generator(c.schedule), {.pp = c.pp, .microbatches = c.m, .chunks = c.chunks});
  } catch (const InputError&) {
    return;  // tested elsewhere
  }
  expect_step_of(*schedule, c, type, variant, layers);
}

void expect_step_of(const Schedule& schedule, const Case& c, DType type, const Variant& variant,
                    const std::vector<int>& layers) {
  SCOPED_TRACE(c.schedule + " tp " + std::to_string(c.tp) + " dp " + std::to_string(c.dp) + " pp " +
               std::to_string(c.pp) + " m " + std::to_string(c.m) + " " + to_string(type) + " layers " +
               testing::PrintToString(layers) + " " + to_string(variant));
  const RankGrid grid{.tp = c.tp, .cp = variant.context_parallel, .dp = c.dp, .pp = c.pp};
  const auto [training, program] = prepare(schedule, grid, type, variant, layers);
  OnCpu run(training, program, {.deadline_s = 20, .poison = true});
  StepResult step;
  try {
    step = run.step();
  } catch (const std::exception& error) {
    FAIL() << error.what();
  }
  EXPECT_EQ(step.known, std::vector<bool>(run.trainer.program().ops.size(), true)) << "not run";
  expect_declared_bytes(run.trainer, training, variant);
  if (type != DType::bf16) {
    const auto exact = reference::first_step(training.model, training.initialisation, run.samples());
    const double limit = type == DType::f64 ? 1e-10 : 1e-5;
    EXPECT_NEAR(step.loss, exact.loss, limit * exact.loss);
    EXPECT_LE(gradient_error(run.trainer.gradients(), exact.gradients), limit);
  }
  run.trainer.finish();
  expect_nothing_left(*run.backend);
}

}  // namespace stp
