// Bytes: what the allocator held and what the groups sent, against what the Program and the model declare.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "stp/base/error.h"
#include "stp/cost/hardware.h"
#include "support/effort.h"
#include "support/saved_memory.h"
#include "support/training.h"

namespace stp {
namespace {

using namespace testing_support;

// Elements of a unit's parameters on one of `tp` ranks: each begins at a multiple of 128.
int64_t elements_of(const ModelConfig& model, Unit unit, int tp) {
  int64_t elements = 0;
  for (const Parameter& parameter : unit_parameters(model, unit))
    elements += (parameter.local_rows(tp) * parameter.columns(tp) + 127) / 128 * 128;
  return elements;
}

void expect_declared_bytes(const std::string& name, int pp, int tp, int m, DType type,
                           const Variant& variant = {}, std::vector<int> layers = {}) {
  std::optional<Schedule> schedule;
  try {
    schedule = make_schedule(find_generator(name), {pp, m});
  } catch (const InputError&) {
    return;
  }
  if (layers.empty()) layers = layers_of_stages(schedule->placement.stages(), 2, variant);
  int sum = 0;
  for (const int each : layers) sum += each;
  const bool replicas = variant.zero || variant.bucket_size > 0;
  const int cp = variant.context_parallel, dp = replicas ? 3 : 1, shares = variant.zero ? cp * dp : 1;
  Training training = small_training(sum, type, {.tp = tp, .cp = cp, .dp = dp, .pp = pp});
  divide_samples(training, variant);
  const auto backend = cpu::make_backend({.world_size = training.grid.size(), .deadline_s = 20});
  Trainer trainer(*backend, execution_program(*schedule, layers, dp, variant), training);
  const Program& program = trainer.program();
  trainer.step(samples_for(program, training));

  const Shape shape{.seq = training.seq,
                    .microbatch_size = training.microbatch_size,
                    .strategy = strategy_of(variant, tp, dp),
                    .element_bytes = static_cast<int>(bytes_of(type)),
                    .vision_tokens = training.vision_tokens};
  const auto saved = peak_saved_bytes(program, training.model, shape, Implementation::suite);
  const Job job{training.model, shape, Implementation::suite};
  const auto host = peak_host_bytes(program, activation_bytes(job, program.layers_per_stage));
  const double tensor = hidden_bytes(training.model, shape);
  for (const RankUse& use : trainer.use()) {
    const int rank = training.grid.place(use.world_rank).pp;
    SCOPED_TRACE(name + " pp " + std::to_string(pp) + " tp " + std::to_string(tp) + " m " +
                 std::to_string(m) + ", world rank " + std::to_string(use.world_rank));
    EXPECT_EQ(static_cast<double>(use.peak_bytes.at("saved")), saved[rank]);
    EXPECT_EQ(static_cast<double>(use.peak_bytes.at("host")), host[rank]);
    // Payload: a gather's input and a transfer of sequence parallelism are a share of the rows.
    const double share = variant.sequence_parallel ? tensor / tp : tensor;
    double reduced = 0, scattered = 0, gathered = 0, sent = 0, exchanged = 0, parameters = 0;
    for (OpId op = program.rank_begin[rank]; op < program.rank_begin[rank + 1]; ++op) {
      const OpKind kind = program.ops[op].kind;
      const bool piece = program.ops[op].part == UnitPart::after;
      if (kind == OpKind::all_reduce)
        reduced += tp > 1
                       ? reduced_bytes(training.model, shape, program.ops[op].unit, program.ops[op].unit_pass)
                       : 0;
      if (kind == OpKind::reduce_scatter) scattered += piece ? tensor / kPipelineSteps : tensor;
      if (kind == OpKind::all_gather) gathered += share;
      if (kind == OpKind::transfer) sent += program.ops[op].tensors() * share;
      if (is_norm_transfer(kind)) sent += sizeof(double);
      if (kind == OpKind::row_exchange)
        exchanged += share;
      else if (kind == OpKind::all_to_all) {
        const bool of_qkv = (program.ops[op].unit_pass == UnitPass::F) == (program.ops[op].step == 1);
        exchanged +=
            (of_qkv ? qkv_bytes(training.model, shape) : attention_output_bytes(training.model, shape)) *
            (cp - 1) / cp;
      } else if (is_exchange(kind))
        exchanged += kv_bytes(training.model, shape);
    }
    EXPECT_EQ(static_cast<double>(use.traffic.all_reduce_bytes), reduced);
    EXPECT_EQ(static_cast<double>(use.traffic.reduce_scatter_bytes), scattered);
    EXPECT_EQ(static_cast<double>(use.traffic.all_gather_bytes), gathered);
    EXPECT_EQ(static_cast<double>(use.traffic.sent_bytes), sent);
    EXPECT_EQ(static_cast<double>(use.traffic.exchanged_bytes), exchanged);
    // Layers, and the tables and the last norm where they are. A chunk's shares are alike.
    for (int chunk = 0; chunk < program.schedule.chunks(); ++chunk) {
      const int stage = program.schedule.placement.stage(rank, chunk);
      const auto of = [&](Unit unit) { return elements_of(training.model, unit, tp); };
      const int64_t pieces = int64_t{128} * shares;
      const auto add = [&](int64_t elements) {
        parameters += static_cast<double>((elements + pieces - 1) / pieces * pieces);
      };
      if (const auto buckets = program.buckets(stage); !buckets.empty()) {
        for (const Bucket& bucket : buckets) {
          int64_t elements = 0;
          for (const UnitOfChunk& unit : bucket.units) elements += of(unit.unit);
          add(elements);
        }
        continue;
      }
      int64_t elements = layers[stage] * (of(Unit::attn) + of(Unit::mlp));
      if (stage == 0)
        elements += of(Unit::embedding) + of(Unit::patches) + of(Unit::merger) +
                    training.model.vision.layers * (of(Unit::vision_attn) + of(Unit::vision_mlp));
      if (stage + 1 == program.schedule.placement.stages()) elements += of(Unit::head);
      add(elements);
    }
    const auto element = static_cast<double>(bytes_of(type)),
               state = static_cast<double>(bytes_of(statistics_type(type)));
    const int states = type == DType::bf16 ? 3 : 2;  // two moments, and the master
    EXPECT_EQ(static_cast<double>(use.peak_bytes.at("weights")), element * parameters);
    EXPECT_EQ(static_cast<double>(use.peak_bytes.at("gradients")), state * parameters);
    double optimizer = states * state;
    if (variant.post_validation) optimizer = 2 * optimizer + element;  // copies, of the weights too
    EXPECT_EQ(static_cast<double>(use.peak_bytes.at("optimizer")), optimizer * parameters / shares);
  }
  trainer.finish();
  for (const int rank : backend->ranks()) {
    MemoryTracker& memory = backend->device(rank).memory();
    for (const MemoryKind kind : {MemoryKind::saved, MemoryKind::working, MemoryKind::communication,
                                  MemoryKind::data, MemoryKind::host})
      EXPECT_EQ(memory.held(kind), 0U) << name << ": " << to_string(kind) << " left after the step";
  }
}

TEST(Bytes, OfEveryScheduleAreThoseDeclared) {
  Sample sampled;
  for (const Generator* generator : generators())
    for (const int pp : {1, 2, 4})
      for (const int tp : {1, 2})
        for (const DType type : {tp == 1 ? DType::f32 : DType::f64, DType::bf16})
          if (sampled()) expect_declared_bytes(generator->name, pp, tp, 3 * pp + 1, type);
}

// Halves of microbatches keep what whole ones would, and move as many bytes.
TEST(Bytes, OfHalvesAreThoseOfWholeMicrobatches) {
  Sample sampled;
  for (const Generator* generator : generators())
    for (const bool sequence_parallel : {false, true})
      for (const Release release : {Release::chain, Release::released}) {
        if (!sampled()) continue;
        Variant variant{.release = release, .sequence_parallel = sequence_parallel};
        std::vector<Traffic> traffic;
        for (const bool halves : {false, true}) {
          variant.halves = halves;
          expect_declared_bytes(generator->name, 2, 2, 4, DType::f64, variant);
          Training training = small_training(2 * generator->chunks, DType::f64, {2, 1, 1, 2});
          training.seq = 8;
          divide_samples(training, variant);
          const auto backend = cpu::make_backend({.world_size = 4, .deadline_s = 20});
          Trainer trainer(*backend,
                          execution_program(make_schedule(*generator, {2, 4}),
                                            std::vector<int>(2 * generator->chunks, 1), 1, variant),
                          training);
          trainer.step(random_samples(samples_of_step(trainer.program(), training), training.seq,
                                      training.model.vocab));
          for (const RankUse& use : trainer.use()) traffic.push_back(use.traffic);
        }
        for (size_t rank = 0; rank < 4; ++rank) {
          const Traffic &whole = traffic[rank], &halves = traffic[rank + 4];
          SCOPED_TRACE(std::string(generator->name) + ", " + to_string(variant));
          EXPECT_EQ(halves.all_reduce_bytes, whole.all_reduce_bytes);
          EXPECT_EQ(halves.reduce_scatter_bytes, whole.reduce_scatter_bytes);
          EXPECT_EQ(halves.all_gather_bytes, whole.all_gather_bytes);
          EXPECT_EQ(halves.sent_bytes, whole.sent_bytes);
        }
      }
}
TEST(Bytes, OfOtherOrdersToo) {
  Sample sampled;
  for (const char* name : {"stp", "zb-v", "1f1b-i"})
    for (const Release release : {Release::block, Release::released})
      for (const bool sequence_parallel : {false, true})
        for (const auto& [recomputed, recompute] : kRecomputes)
          if (sampled())
            expect_declared_bytes(name, 2, 2, 8, DType::f32,
                                  {BackwardOrder::megatron, release, sequence_parallel, recompute},
                                  {0, 2, 1, 1});
}

TEST(Bytes, OfSharedOptimizerState) {
  for (const char* name : {"stp", "zb-v", "1f1b-i"})
    for (const DType type : {DType::f32, DType::bf16})
      expect_declared_bytes(name, 2, 2, 5, type, {.sequence_parallel = true, .zero = true});
}
TEST(Bytes, OfBuckets) {
  Sample sampled;
  for (const char* name : {"stp", "1f1b"})
    for (const Variant& variant : with_buckets())
      if (sampled()) expect_declared_bytes(name, 2, 2, 5, DType::bf16, variant);
}
TEST(Bytes, OfPostValidation) {
  for (const char* name : {"stp", "zb-v", "1f1b-i", "1f1b"})
    for (const DType type : {DType::f32, DType::bf16})
      for (const bool zero : {false, true})
        expect_declared_bytes(name, 2, 2, 8, type,
                              {.sequence_parallel = true, .zero = zero, .post_validation = true});
}
TEST(Bytes, OfContextParallelism) {
  Sample sampled;
  size_t first = 0;
  for (const char* schedule : {"zb-v", "stp"})
    for (const Variant& variant : context_parallel(first++))
      for (const int tp : {1, 2})
        if (ring_fits(variant, tp) && sampled())
          expect_declared_bytes(schedule, 2, tp, 4, tp == 1 ? DType::f32 : DType::bf16, variant);
}

TEST(Bytes, OfOverlappedTensorParallelism) {
  Sample sampled;
  for (const char* schedule : {"zb-v", "stp", "1f1b-i"})
    for (const Variant& variant : with_overlap())
      if (sampled())
        expect_declared_bytes(schedule, 2, variant.overlapped, 4,
                              variant.overlapped == 4 ? DType::f32 : DType::bf16, variant);
}

// A ring's t − 1 exchanges send (t − 1)/t of what they gather; pieces add up to what they are pieces of.
TEST(Bytes, OfOverlappedUnitsAreThoseOfTheirGathersAndScatters) {
  for (const int tp : {2, 4}) {
    const int layers = 4, m = 4;
    Training training = small_training(layers, DType::f32, {.tp = tp, .cp = 1, .dp = 1, .pp = 1});
    const auto traffic = [&](const Variant& variant) {
      const auto backend = cpu::make_backend({.world_size = tp, .deadline_s = 20});
      Trainer trainer(*backend,
                      execution_program(make_schedule(find_generator("zb-v"), {1, m}), {2, 2}, 1, variant),
                      training);
      trainer.step(random_samples(m * training.microbatch_size, training.seq, training.model.vocab));
      return trainer.use()[0].traffic;
    };
    const Traffic plain = traffic({.sequence_parallel = true}),
                  overlapped = traffic({.sequence_parallel = true, .overlapped = tp});
    const int64_t tensor = training.tokens() * training.model.hidden * int64_t{sizeof(float)};
    const int64_t gathers = int64_t{2} * 2 * layers * m;  // of attn and mlp, in F and I
    EXPECT_EQ(overlapped.exchanged_bytes, gathers * tensor * (tp - 1) / tp);
    EXPECT_EQ(plain.all_gather_bytes - overlapped.all_gather_bytes, gathers * tensor / tp);
    EXPECT_EQ(overlapped.reduce_scatter_bytes, plain.reduce_scatter_bytes);
  }
}

TEST(Bytes, OfOffload) {
  Sample sampled;
  int cases = 0;
  for (const char* schedule : {"stp", "1f1b-i", "gpipe"})
    for (const Variant& variant : offloading())
      if (const int tp = 1 + ++cases % 2; sampled())
        expect_declared_bytes(schedule, 2, tp, 8, DType::bf16, variant);
}

TEST(Bytes, OfVisionEncoders) {
  Sample sampled;
  for (const char* schedule : {"stp", "zb-v", "1f1b-i", "dualpipev"})
    for (const int tp : {1, 2, 4})
      for (const Variant& variant : with_vision())
        if (sampled()) expect_declared_bytes(schedule, 2, tp, 4, tp == 2 ? DType::bf16 : DType::f32, variant);
}
TEST(Bytes, OfVisionEncodersOfEverySchedule) {
  Sample sampled;
  for (const Generator* generator : generators())
    for (const int pp : {1, 2, 4})
      if (pp * generator->chunks > 1 && sampled())
        expect_declared_bytes(generator->name, pp, 2, 3 * pp + 1, DType::f64, {.vision_layers = 3});
}

TEST(Bytes, OfSequenceParallelismAndEveryRecomputation) {
  Sample sampled;
  for (const Generator* generator : generators())
    for (const Variant& variant : sharded_or_recomputed())
      for (const int tp : {1, 2, 4})
        if (sampled()) expect_declared_bytes(generator->name, 2, tp, 7, DType::f32, variant);
}

// By hand, of one rank with one layer and three microbatches, all forwards first. Columns of 12 rows.
TEST(Bytes, RecomputedTensorsAreHeldFromTheirInputGradientOn) {
  const ModelConfig model = small_model(1);
  const int h = model.hidden, f = model.ffn, q = model.q_heads * model.head_dim,
            qkv = q + 2 * model.kv_heads * model.head_dim;
  const int head = h + 1 + h + model.vocab;  // its norm's input, statistics and output; the logits
  const int norm = 1 + h, mlp = 2 * f + f,   // made again: statistics and output; gate, up, activation
      attn = qkv + q + model.q_heads;        // and QKV, the core's output and log-sum-exps
  const int mlp_gradients = 2 * f + h, attn_gradients = qkv + h;
  const auto peak = [&](const Recompute& recompute) {
    const Training training = small_training(1, DType::f32, {.tp = 1, .cp = 1, .dp = 1, .pp = 1});
    const auto backend = cpu::make_backend({.world_size = 1, .deadline_s = 20});
    Trainer trainer(
        *backend,
        execution_program(make_schedule(find_generator("gpipe"), {1, 3}), {1}, 1, {.recompute = recompute}),
        training);
    trainer.step(random_samples(3 * training.microbatch_size, training.seq, training.model.vocab));
    return static_cast<double>(trainer.use()[0].peak_bytes.at("saved")) / (sizeof(float) * 12);
  };
  const auto expected = [&](int of_attn, int of_mlp, int attn_again, int mlp_again) {
    const int others = 2 * (of_attn + of_mlp + head);  // the two other microbatches
    const int during_mlp = of_attn + of_mlp + mlp_again + mlp_gradients;
    const int during_attn = of_attn + attn_again + attn_gradients;  // the MLP's are gone
    return std::max({others + of_attn + of_mlp + head, others + during_mlp, others + during_attn});
  };
  const int unit = h + norm;
  EXPECT_EQ(peak({}), expected(unit + attn, unit + mlp, 0, 0));
  EXPECT_EQ(peak({.mlp = true}), expected(unit + attn, unit, 0, mlp));
  EXPECT_EQ(peak({.core = true, .qkv = true, .mlp = true}), expected(unit, unit, attn, mlp));
  EXPECT_EQ(peak({.core = true, .qkv = true, .mlp = true, .norm = true}),
            expected(h, h, norm + attn, norm + mlp));
}

}  // namespace
}  // namespace stp
