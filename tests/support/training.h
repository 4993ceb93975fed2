// Small models, their data, and runs of them on the CPU backend, for tests of the runtime.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "baselines/registry.h"
#include "stp/cpu/cpu_backend.h"
#include "stp/model/partition.h"
#include "stp/program/lower.h"
#include "stp/reference/transformer.h"
#include "stp/runtime/trainer.h"
#include "stp/schedule/validate.h"
#include "support/reference_adamw.h"

namespace stp::testing_support {

using reference::gradient_error;

inline ModelConfig small_model(int layers) {
  ModelConfig model{};
  model.name = "small";
  model.layers = layers;
  model.hidden = 16;
  model.ffn = 24;
  model.q_heads = 8;
  model.kv_heads = 4;
  model.head_dim = 4;
  model.vocab = 20;
  return model;
}

inline std::vector<TokenSample> random_samples(int count, int seq, int vocab, uint32_t seed = 1,
                                               int vision_tokens = 0) {
  std::vector<TokenSample> all(count);
  const auto draw = [&] { return (seed = seed * 1664525 + 1013904223) >> 8; };
  const auto next = [&] { return static_cast<int32_t>(draw()) % vocab; };
  for (TokenSample& sample : all) {
    for (int s = 0; s < seq; ++s) {
      sample.tokens.push_back(next());
      sample.targets.push_back(next());
    }
    for (int i = 0; i < vision_tokens * kPatchElements; ++i)  // as of pixels
      sample.patches.push_back(static_cast<float>(draw() >> 16) / 128 - 1);
  }
  return all;
}

/// A training, and the ranks for which its Program is lowered.
struct GridTraining : Training {
  RankGrid grid;
};

inline GridTraining small_training(int layers, DType type, RankGrid grid) {
  GridTraining training;
  training.model = small_model(layers);
  training.seq = grid.cp > 1 ? 4 * grid.cp : 6;
  training.microbatch_size = 2;
  training.type = type;
  training.grid = grid;
  training.initialisation = {
      .seed = 5, .weight_deviation = 0.2, .bias_deviation = 0.1, .gain_deviation = 0.1};
  training.clip_norm = 0.5;
  return training;
}

/// How a schedule's program is lowered for execution.
struct Variant {
  BackwardOrder order = BackwardOrder::suite;
  Release release = Release::chain;
  bool sequence_parallel = false;
  Recompute recompute;
  bool zero = false;
  int context_parallel = 1;
  CpMethod cp_method = CpMethod::ring;
  int overlapped = 1;  // more: tp_overlap of so many tensor-parallel ranks
  double offload = 0;
  int offload_chunks = 0;
  bool post_validation = false;
  bool halves = false;  // Domino
  BraidPolicy braid = BraidPolicy::static_merge;
  int vision_layers = 0;
  double bucket_size = 0;  // in units, of the first chunk; 0: there is one
  ModelVariant model = {};
  int positions = 0;  // learned: of a gpt
};
/// Braids in another order than the static one, as times may ask for.
inline std::vector<Variant> with_other_braids() {
  std::vector<Variant> all;
  for (const bool sequence_parallel : {false, true})
    all.push_back({.order = sequence_parallel ? BackwardOrder::megatron : BackwardOrder::suite,
                   .sequence_parallel = sequence_parallel,
                   .recompute = {.layer = sequence_parallel},
                   .braid = BraidPolicy::timed});
  return all;
}
/// One that no policy would give, with barriers.
inline std::vector<BraidStep> made_up_order(std::span<const Segment> a, std::span<const Segment> b) {
  std::vector<BraidStep> order = static_braid(static_cast<int>(b.size()), static_cast<int>(a.size()));
  for (size_t i = 0; i < order.size(); ++i) order[i] = {static_cast<uint8_t>(1 - order[i].chain), i % 3 == 2};
  return order;
}
/// Sequence parallelism and each recomputation, but for neither.
inline std::vector<Variant> sharded_or_recomputed() {
  std::vector<Variant> all;
  for (const bool sequence_parallel : {false, true})
    for (const auto& [name, recompute] : kRecomputes)
      if (sequence_parallel || recompute != Recompute{})
        all.push_back({.sequence_parallel = sequence_parallel, .recompute = recompute});
  return all;
}
inline std::string name_of(const Recompute& recompute) {
  for (const auto& [name, choice] : kRecomputes)
    if (choice == recompute) return name;
  return "without a name";
}
inline constexpr CpMethod kCpMethods[] = {CpMethod::ring, CpMethod::all_to_all};
/// Sequences shared by two and four ranks, with every option that these may have beside: the methods in turn,
/// from the `first` on, so that with another `first` each has the other.
inline std::vector<Variant> context_parallel(size_t first) {
  std::vector<Variant> all;
  for (const int ranks : {2, 4})
    for (const bool sequence_parallel : {false, true})
      for (const auto& [name, recompute] : kRecomputes)
        all.push_back({.order = ranks == 2 ? BackwardOrder::suite : BackwardOrder::megatron,
                       .release = sequence_parallel ? Release::released : Release::chain,
                       .sequence_parallel = sequence_parallel,
                       .recompute = recompute,
                       .zero = sequence_parallel && recompute == Recompute{},
                       .context_parallel = ranks,
                       .cp_method = kCpMethods[(first + all.size()) % 2]});
  return all;
}
/// Megatron-LM's overlap of tensor-parallel groups of two and four, with every option that it may have
/// beside.
inline std::vector<Variant> with_overlap() {
  std::vector<Variant> all;
  for (const int ranks : {2, 4})
    for (const auto& [name, recompute] : kRecomputes)
      all.push_back({.order = ranks == 2 ? BackwardOrder::megatron : BackwardOrder::suite,
                     .release = ranks == 2 ? Release::chain : Release::released,
                     .sequence_parallel = true,
                     .recompute = recompute,
                     .overlapped = ranks});
  for (const auto& [name, recompute] : kRecomputes)
    all.push_back({.release = Release::block,
                   .sequence_parallel = true,
                   .recompute = recompute,
                   .context_parallel = 2,
                   .cp_method = kCpMethods[all.size() % 2],
                   .overlapped = 2});
  return all;
}
inline TpOverlap tp_overlap(const Variant& variant) {
  return variant.overlapped > 1 ? TpOverlap::megatron : variant.halves ? TpOverlap::domino : TpOverlap::none;
}
/// Offload of all or of a part of the tensors, with what users combine it with.
inline std::vector<Variant> offloading() {
  std::vector<Variant> all;
  for (const Release release : {Release::chain, Release::block, Release::released})
    for (const bool zero : {false, true})
      all.push_back({.order = zero ? BackwardOrder::megatron : BackwardOrder::suite,
                     .release = release,
                     .zero = zero,
                     .offload = zero ? 0.4 : 1});
  for (const bool sequence_parallel : {false, true})
    for (const auto& [name, recompute] : kRecomputes)
      for (const int cp : {1, 2})
        all.push_back({.sequence_parallel = sequence_parallel,
                       .recompute = recompute,
                       .context_parallel = cp,
                       .cp_method = kCpMethods[all.size() / 2 % 2],
                       .offload = sequence_parallel == (cp == 1) ? 1 : 0.4});
  return all;
}
inline std::string to_string(const Variant& variant) {
  return "order " + std::to_string(static_cast<int>(variant.order)) + " release " +
         std::to_string(static_cast<int>(variant.release)) + " sequence parallel " +
         std::to_string(variant.sequence_parallel) + " recompute " + name_of(variant.recompute) +
         (variant.zero ? " zero" : "") + (variant.post_validation ? " post-validation" : "") +
         " context parallel " + std::to_string(variant.context_parallel) +
         (variant.cp_method == CpMethod::all_to_all ? " all-to-all" : "") + " overlapped " +
         std::to_string(variant.overlapped) + (variant.halves ? " halves" : "") +
         (is_by_times(variant.braid) ? " braid " + std::to_string(static_cast<int>(variant.braid)) : "") +
         (variant.vision_layers > 0 ? " vision layers " + std::to_string(variant.vision_layers) : "") +
         (variant.offload > 0 ? " offload " + std::to_string(variant.offload) + " of " +
                                    std::to_string(variant.offload_chunks)
                              : "") +
         (variant.bucket_size > 0 ? " bucket size " + std::to_string(variant.bucket_size) : "") +
         (variant.model == ModelVariant{} ? "" : " a variant of the model") +
         (variant.positions > 0 ? " with positions" : "");
}

/// Other models than Qwen2: GPTs, norms of q and k, and what a layer may have else.
inline std::vector<Variant> of_other_models() {
  std::vector<Variant> all;
  for (const Activation activation : {Activation::gelu, Activation::gelu_tanh})
    all.push_back({.model = {.activation = activation}, .positions = 32});
  all.push_back(
      {.model = {.norm = Norm::layer_without_bias, .biases = Biases::none, .tied = false}, .positions = 32});
  all.push_back({.model = {.biases = Biases::none, .query_key_norm = true}});  // Qwen3
  all.push_back({.model = {.biases = Biases::all, .query_key_norm = true}});
  all.push_back({.model = {.norm = Norm::layer, .biases = Biases::all, .rotary_share = 0.5}});
  all.push_back({.model = {.norm = Norm::layer_without_bias,  // Nemotron
                           .activation = Activation::squared_relu,
                           .biases = Biases::none,
                           .rotary_share = 0.5}});
  return all;
}

/// Buckets of one unit and of two, with what users combine them with; for two or more replicas.
inline std::vector<Variant> with_buckets() {
  std::vector<Variant> all;
  for (const bool zero : {false, true})
    for (const double size : {1, 2}) {
      for (const Release release : {Release::chain, Release::released})
        for (const bool sequence_parallel : {false, true})
          all.push_back({.order = zero ? BackwardOrder::suite : BackwardOrder::megatron,
                         .release = release,
                         .sequence_parallel = sequence_parallel,
                         .recompute = {.layer = size == 2 && sequence_parallel},
                         .zero = zero,
                         .bucket_size = size});
      all.push_back({.sequence_parallel = zero, .zero = zero, .context_parallel = 2, .bucket_size = size});
      all.push_back({.zero = zero, .post_validation = true, .bucket_size = size});
      all.push_back({.zero = zero, .halves = true, .bucket_size = size});
      all.push_back({.zero = zero, .vision_layers = 2, .bucket_size = size});
      all.push_back({.release = Release::block, .zero = zero, .offload = 1, .bucket_size = size});
      all.push_back({.sequence_parallel = true, .zero = zero, .overlapped = 2, .bucket_size = size});
    }
  return all;
}
/// One parameter a unit.
inline BucketRule bucket_rule(const Variant& variant) {
  BucketRule rule{.size = variant.bucket_size};
  rule.parameters.fill(1);
  return rule;
}

inline Strategy strategy_of(const Variant& variant, const RankGrid& grid) {
  return {.tp = grid.tp,
          .cp = grid.cp,
          .dp = grid.dp,
          .pp = grid.pp,
          .cp_method = variant.cp_method,
          .sequence_parallel = variant.sequence_parallel,
          .recompute = variant.recompute,
          .tp_overlap = tp_overlap(variant),
          .offload = variant.offload,
          .offload_chunks = variant.offload_chunks,
          .zero = variant.zero,
          .post_validation = variant.post_validation};
}

/// Of two pipelines' layers, those of one model.
inline std::vector<int> layers_of_model(const Placement& placement, std::vector<int> layers) {
  layers.resize(placement.depth());
  return layers;
}

inline Program execution_program(Schedule schedule, std::vector<int> layers, const RankGrid& grid,
                                 const Variant& variant = {}) {
  validate(schedule);
  if (schedule.placement.pipelines() > 1) {
    const std::vector<int> model = layers_of_model(schedule.placement, std::move(layers));
    layers = model;
    layers.insert(layers.end(), model.begin(), model.end());
  }
  return lower(std::move(schedule), layers,
               {.release = variant.release,
                .backward = variant.order,
                .optimizer = true,
                .braid = variant.braid,
                .order = made_up_order,
                .strategy = strategy_of(variant, grid),
                .data_parallel = grid.dp * grid.cp > 1,
                .buckets = bucket_rule(variant),
                .embedding = true,
                .tied = variant.model.tied.value_or(variant.positions > 0),
                .vision_layers = variant.vision_layers});
}

/// With a vision encoder, what a runtime may have beside it: every release, both backward orders, shared
/// optimizer states, post-validation, halves of microbatches.
inline std::vector<Variant> with_vision() {
  std::vector<Variant> all;
  for (const Release release : {Release::chain, Release::block, Release::released})
    for (const BackwardOrder order : {BackwardOrder::suite, BackwardOrder::megatron})
      all.push_back({.order = order, .release = release, .vision_layers = 2});
  all.push_back({.zero = true, .vision_layers = 3});
  all.push_back({.post_validation = true, .vision_layers = 2});
  all.push_back({.release = Release::released, .halves = true, .vision_layers = 1});
  return all;
}

/// How `training` divides the samples of a step into the microbatches of such a program, and the vision
/// encoder that stands before its model; and as many heads of keys as are exchanged.
inline void divide_samples(GridTraining& training, const Variant& variant) {
  training.model.variant = variant.model;
  training.model.positions = variant.positions;
  if (variant.positions > 0) training.model.family = Family::gpt;
  if (variant.cp_method == CpMethod::all_to_all && training.grid.tp * training.grid.cp > 4)
    training.model.kv_heads = 8;
  if (variant.vision_layers > 0) {
    training.model.vision = {.layers = variant.vision_layers, .hidden = 8, .heads = 4, .ffn = 12};
    training.vision_tokens = 8;
  }
  if (!variant.halves) return;
  training.microbatch_size /= 2;
  training.seq = (training.seq + 3) / 4 * 4;  // up to four ranks divide a half's rows
}
/// By virtual stage, `each` of the language model, but for the vision encoder's.
inline std::vector<int> layers_of_stages(int stages, int each, const Variant& variant) {
  std::vector<int> layers(stages, each);
  if (variant.vision_layers > 0) layers.front() = 0;
  return layers;
}
/// Those of a step of so many microbatches.
inline std::vector<TokenSample> samples_for(int microbatches, const GridTraining& training,
                                            uint32_t seed = 1) {
  return random_samples(microbatches * training.microbatch_size * training.grid.dp, training.seq,
                        training.model.vocab, seed, training.vision_tokens);
}
inline std::vector<TokenSample> samples_for(const Program& program, const GridTraining& training,
                                            uint32_t seed = 1) {
  return samples_for(program.schedule.all_microbatches(), training, seed);
}

/// What the model declares goes by it.
inline Shape shape_of(const GridTraining& training, const Variant& variant) {
  return {.seq = training.seq,
          .microbatch_size = training.microbatch_size,
          .strategy = strategy_of(variant, training.grid),
          .element_bytes = static_cast<int>(bytes_of(training.type)),
          .vision_tokens = training.vision_tokens};
}

/// Its ranks share the vocabulary.
inline bool shares_vocabulary(const Schedule& schedule) {
  return vocabulary_of(schedule) != Vocabulary::whole;
}
/// So that up to 4 · 4 ranks, or three, can share it.
inline void fit_vocabulary(Training& training, const Schedule& schedule) {
  if (shares_vocabulary(schedule)) training.model.vocab = 48;
}

struct Prepared {
  GridTraining training;
  Program program;
};
/// A training of a schedule on these ranks, with `layers` by virtual stage, by default one each but for a
/// vision encoder's; of samples of `seq` tokens, or of as many as small_training() has.
inline Prepared prepare(const Schedule& schedule, const RankGrid& grid, DType type, const Variant& variant,
                        std::vector<int> layers = {}, int seq = 0) {
  if (layers.empty()) layers = layers_of_stages(schedule.placement.stages(), 1, variant);
  layers = layers_of_model(schedule.placement, std::move(layers));
  GridTraining training = small_training(std::accumulate(layers.begin(), layers.end(), 0), type, grid);
  if (seq > 0) training.seq = seq;
  divide_samples(training, variant);
  fit_vocabulary(training, schedule);
  return {training, execution_program(schedule, layers, grid, variant)};
}

/// `layers` divided over the stages of the schedule, the first ones with one more.
inline Program program_of(const std::string& schedule, const RankGrid& grid, int microbatches, int layers,
                          const Variant& variant = {}) {
  Schedule made = make_schedule(find_generator(schedule), {grid.pp, microbatches});
  const int stages = made.placement.depth();
  return execution_program(std::move(made), even_partition(layers, stages), grid, variant);
}

/// A training whose ranks are threads of this process.
struct OnCpu {
  OnCpu(const GridTraining& training_, Program program, BackendOptions options = {.deadline_s = 20})
      : OnCpu(training_, std::move(program), [&] {
          options.world_size = training_.grid.size();
          return cpu::make_backend(options);
        }()) {}
  OnCpu(const GridTraining& training_, Program program, std::unique_ptr<Backend> on)
      : training(training_), backend(std::move(on)), trainer(*backend, std::move(program), training) {}

  [[nodiscard]] std::vector<TokenSample> samples(uint32_t seed = 1) {
    return samples_for(trainer.program(), training, seed);
  }
  StepResult step(uint32_t seed = 1) { return trainer.step(samples(seed)); }

  const GridTraining training;
  const std::unique_ptr<Backend> backend;
  Trainer trainer;
};

/// What a step leaves on no device.
inline void expect_nothing_left(Backend& backend) {
  for (const int rank : backend.ranks())
    for (const MemoryKind kind : {MemoryKind::saved, MemoryKind::working, MemoryKind::communication,
                                  MemoryKind::data, MemoryKind::host})
      EXPECT_EQ(backend.device(rank).memory().held(kind), 0U) << to_string(kind) << " left after the step";
}

/// In so many steps as much as the other in one.
inline void expect_same_traffic(const Traffic& found, const Traffic& expected, int64_t steps = 1) {
  EXPECT_EQ(found.all_reduce_bytes, steps * expected.all_reduce_bytes);
  EXPECT_EQ(found.all_gather_bytes, steps * expected.all_gather_bytes);
  EXPECT_EQ(found.reduce_scatter_bytes, steps * expected.reduce_scatter_bytes);
  EXPECT_EQ(found.sent_bytes, steps * expected.sent_bytes);
  EXPECT_EQ(found.exchanged_bytes, steps * expected.exchanged_bytes);
}
inline void expect_same_peaks(const RankUse& found, const RankUse& expected,
                              std::initializer_list<const char*> kinds) {
  for (const char* kind : kinds) EXPECT_EQ(found.peak_bytes.at(kind), expected.peak_bytes.at(kind)) << kind;
}

/// The same training step by step, on one rank, by lib/stp/reference.
class PlainTraining {
 public:
  explicit PlainTraining(const Training& training)
      : training_(training),
        weights_(reference::initial_parameters(training.model, training.initialisation)) {}

  /// The loss and the gradients with which the step begins.
  reference::LossAndGradients step(const std::vector<TokenSample>& samples) {
    auto exact = reference::loss_and_gradients(training_.model, weights_, samples);
    const AdamW& o = training_.optimizer;
    reference::adamw_step({o.learning_rate, o.beta1, o.beta2, o.epsilon, o.weight_decay, training_.clip_norm},
                          exact.gradients, weights_, state_);
    return exact;
  }
  [[nodiscard]] const reference::Parameters& weights() const { return weights_; }

 private:
  const Training training_;
  reference::Parameters weights_;
  reference::AdamWState state_;
};

}  // namespace stp::testing_support
