// Every schedule trains like one rank, and holds and sends what is declared: the executor against the
// reference, the Program and the model.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "runtime/checked_step.h"
#include "stp/cost/cost_table.h"
#include "stp/schedule/local_search.h"
#include "stp/schedule/merge_backward.h"
#include "stp/simulate/simulate.h"
#include "support/effort.h"
#include "support/golden.h"
#include "support/programs.h"

namespace stp {
namespace {

using namespace testing_support;

// Each test has its cases, of which a sample is run.
class Parity : public testing::Test {
 protected:
  void check(const Case& c, DType type, const Variant& variant = {}, const std::vector<int>& layers = {}) {
    if (sampled()) expect_step(c, type, variant, layers);
  }
  Sample sampled;
};

TEST_F(Parity, OneRank) { expect_step({"1f1b", 1, 1, 1, 1, 1}, DType::f64); }
TEST_F(Parity, DataParallelReplicas) {
  for (const char* schedule : {"1f1b-i", "stp"})
    for (const int tp : {1, 2}) expect_step({schedule, tp, 2, 2, 4}, DType::f64);
}
TEST_F(Parity, FourTensorParallelRanks) { expect_step({"stp", 4, 1, 2, 7}, DType::f64); }

// Schedules with every placement and every kind of block. Options meet placements and blocks, not orders: the
// others have the same in other orders, and EverySchedule trains them all.
std::vector<const Generator*> of_each_kind() {
  std::vector<const Generator*> some;
  for (const char* name : {"stp", "stp-memory", "1f1b", "1f1b-i", "1f1b-i-braided", "dhelix", "dualpipev",
                           "gpipe", "hanayo", "v-half", "zb-h1", "zb-v", "gis"})
    some.push_back(&find_generator(name));
  return some;
}

// Every schedule, at few and many microbatches, in both types. `stp run parity` has more cases of twelve
// schedules.
TEST_F(Parity, EverySchedule) {
  for (const Generator* generator : generators())
    for (const int pp : {1, 2, 4})
      for (const int m : {1, 3, 2 * pp, 3 * pp + 1})
        for (const int tp : {1, 2})
          check({generator->name, tp, 1, pp, m}, m % 2 == 1 ? DType::f64 : DType::f32);
}
TEST_F(Parity, EveryScheduleInBf16) {
  for (const Generator* generator : generators())
    for (const int pp : {1, 2, 4})
      for (const int tp : {1, 2}) check({generator->name, tp, 1, pp, 3 * pp + 1}, DType::bf16);
}
TEST_F(Parity, AdjacentInputAndWeightGradientsAsOne) {
  for (const char* name : {"zb-v", "v-half", "v-min"}) {
    const Schedule schedule = make_schedule(find_generator(name), {2, 7});
    const Schedule merged = merge_backward(schedule);
    EXPECT_LT(merged.ranks[0].size(), schedule.ranks[0].size()) << name;
    for (const Variant& variant :
         {Variant{}, Variant{.order = BackwardOrder::megatron}, Variant{.vision_layers = 2}})
      expect_step_of(merged, {std::string(name) + " merged", 2, 1, 2, 7}, DType::f64, variant);
  }
}
// Searched as by stp search, from a random order of random p ≤ 4, m, costs and limit: any kind of block.
Schedule searched_schedule(std::mt19937& random) {
  const int p = 1 << random() % 3, m = 1 + static_cast<int>(random() % (3 * p));
  const Schedule start = random_schedule(
      random, random() % 3 ? Placement::v(p) : Placement::loop(p, 1 + static_cast<int>(random() % 2)), m);
  std::uniform_real_distribution<double> cost(0.1, 1);
  CostTable table;
  for (const Unit unit : kLayerUnits)
    for (const UnitPass pass : {UnitPass::F, UnitPass::I, UnitPass::W_late})
      table.at(unit, pass) = cost(random);
  table.all_reduce = cost(random) / 2;
  table.transfer_within_node = table.transfer_between_nodes = table.transfer_beside_another =
      cost(random) / 4;
  const std::vector<int> layers(start.placement.stages(), 1);
  SearchRequest request{.seed = random(), .moves = 1000};
  request.activation_limit = std::ranges::max(peak_activations(start)) + static_cast<int>(random() % 3);
  request.step_seconds = [&](const Schedule& schedule) {
    const Program program = lower(schedule, layers, {.release = Release::released});
    return simulate(program, op_seconds(program, table), {0.8, 0.9}).step_s;
  };
  return local_search(start, request.step_seconds(start), request).schedule;
}
TEST_F(Parity, SearchedOrders) {
  std::mt19937 random(1302);
  for (const int i : sample_of(0, kStride > 1 ? 60 : 200)) {
    const Schedule schedule = searched_schedule(random);
    expect_step_of(schedule, {"search", 1 + i % 2, 1, schedule.pp(), schedule.microbatches}, DType::f64,
                   {BackwardOrder::suite, kReleases[i % std::size(kReleases)]});
  }
}
TEST_F(Parity, ManyChunksARank) {
  for (const int chunks : {1, 3, 4}) expect_step({"1f1b-i", 2, 1, 2, 4, chunks}, DType::f64);
}
TEST_F(Parity, BothBackwardOrdersAndEveryRelease) {
  for (const BackwardOrder order : {BackwardOrder::suite, BackwardOrder::megatron})
    for (const Release release : kReleases)
      for (const char* schedule : {"stp", "zb-v", "1f1b", "1f1b-i"})
        expect_step({schedule, 2, 1, 2, 7}, DType::f64, {order, release});
}
TEST_F(Parity, UnevenAndEmptyChunks) {
  for (const char* schedule : {"stp", "zb-v", "1f1b-i"})
    for (const std::vector<int>& layers :
         {std::vector{0, 2, 1, 0}, {2, 0, 0, 1}, {0, 0, 0, 2}, {1, 0, 2, 0}, {0, 1, 1, 1}, {3, 1, 2, 1}})
      for (const Release release : {Release::chain, Release::block, Release::released})
        for (const int tp : {1, 2})
          check({schedule, tp, tp == 1 ? 2 : 1, 2, 4}, DType::f64, {BackwardOrder::megatron, release},
                layers);
}

// Sequence parallelism and recomputation, of every schedule.
TEST_F(Parity, SequenceParallelismAndEveryRecomputation) {
  for (const Generator* generator : of_each_kind())
    for (const Variant& variant : sharded_or_recomputed())
      for (const int tp : {1, 2, 4})
        check({generator->name, tp, 1, 2, 7}, tp == 2 ? DType::f32 : DType::f64, variant);
}

TEST_F(Parity, SharedOptimizerState) {
  for (const Generator* generator : of_each_kind())
    for (Variant variant : sharded_or_recomputed()) {
      variant.zero = true;
      check({generator->name, 2, 2, 2, 7}, DType::f64, variant);
    }
}
// Domino: the halves of each microbatch, braided. Every two values of tp, sequence_parallel and release come
// together.
TEST_F(Parity, HalvesOfMicrobatches) {
  for (const Generator* generator : of_each_kind())
    for (const int pp : {1, 2, 4})
      for (const int tp : {2, 4})
        for (const bool sequence_parallel : {false, true})
          check({generator->name, tp, 1, pp, 2 * pp}, tp == 2 ? DType::f64 : DType::f32,
                {.release = (tp == 2) == sequence_parallel ? Release::chain : Release::released,
                 .sequence_parallel = sequence_parallel,
                 .halves = true});
}
TEST_F(Parity, HalvesOfMicrobatchesWithEveryOption) {
  for (const char* schedule : {"1f1b-i", "zb-v", "stp"})
    for (const Release release : {Release::chain, Release::block, Release::released})
      for (const auto& [name, recompute] : kRecomputes)
        for (const int cp : {1, 2})
          check({schedule, 2, cp == 1 ? 2 : 1, 2, 4}, DType::f64,
                {.order = BackwardOrder::megatron,
                 .release = release,
                 .sequence_parallel = true,
                 .recompute = recompute,
                 .zero = cp == 1,
                 .context_parallel = cp,
                 .halves = true});
}
TEST_F(Parity, ContextParallelism) {
  size_t first = 0;
  for (const char* schedule : {"1f1b-i", "zb-v", "stp", "dualpipev"})
    for (const Variant& variant : context_parallel(first++))
      for (const int tp : {1, 2})
        // Of four ranks those alone that matter.
        if (variant.context_parallel == 2 || variant.sequence_parallel == (tp > 1))
          check({schedule, tp, variant.context_parallel == 2 ? tp : 1, 2, 4}, DType::f64, variant);
}
TEST_F(Parity, ContextParallelismOfEachKind) {
  for (const Generator* generator : of_each_kind())
    for (const auto& [ranks, method] : {std::pair{3, CpMethod::ring}, {4, CpMethod::all_to_all}})
      check({generator->name, 1, 1, 2, 6}, DType::f32, {.context_parallel = ranks, .cp_method = method});
}

TEST_F(Parity, OverlappedTensorParallelism) {
  for (const Generator* generator : of_each_kind())
    for (const Variant& variant : with_overlap())
      check({generator->name, variant.overlapped, 1, 2, variant.context_parallel == 2 ? 4 : 7}, DType::f64,
            variant);
}

TEST_F(Parity, VisionEncoders) {
  for (const char* schedule : {"stp", "zb-v", "1f1b-i", "dualpipev"})
    for (const int tp : {1, 2, 4})
      for (const DType type : {DType::f64, DType::f32})
        for (const Variant& variant : with_vision())
          check({schedule, tp, variant.zero ? 2 : 1, 2, 4}, type, variant);
}
TEST_F(Parity, VisionEncodersOfEachKind) {
  for (const Generator* generator : of_each_kind())
    for (const int pp : {1, 2, 4})
      for (const int m : {1, 2 * pp, 3 * pp + 1})
        if (pp * generator->chunks > 1)
          check({generator->name, 2, 1, pp, m}, DType::f64, {.vision_layers = 2});
}
// Chunks without layers between the encoder and the language model's first layer, and behind it.
TEST_F(Parity, VisionEncodersBesideEmptyChunks) {
  for (const char* schedule : {"stp", "zb-v", "1f1b-i"})
    for (const std::vector<int>& layers : {std::vector{0, 0, 2, 1}, {0, 2, 0, 0}, {0, 0, 0, 0}, {0, 1, 0, 2}})
      for (const Variant& variant : with_vision())
        if (!variant.zero) check({schedule, 2, 1, 2, 4}, DType::f64, variant, layers);
}
TEST_F(Parity, Buckets) {
  for (const char* schedule : {"stp", "zb-v", "1f1b-i", "1f1b"})
    for (const Variant& variant : with_buckets()) {
      std::vector<int> layers;
      if (variant.vision_layers == 0)
        layers = schedule == std::string("1f1b") ? std::vector{3, 1} : std::vector{3, 1, 1, 0};
      check({schedule, 2, variant.zero ? 3 : 2, 2, 4}, DType::f64, variant, layers);
    }
}
TEST_F(Parity, BucketsOfOneRank) {  // whose chunk has the head, too
  for (const double size : {1, 2, 4})
    for (const bool zero : {false, true})
      expect_step({"1f1b", 2, 2, 1, 3}, DType::f64, {.zero = zero, .bucket_size = size}, {2});
}

TEST_F(Parity, BraidsInAnotherOrder) {
  for (const char* schedule : {"stp", "dualpipev", "1f1b-i-braided", "dhelix"})
    for (const Variant& variant : with_other_braids()) check({schedule, 2, 1, 2, 7}, DType::f64, variant);
}

// Copies run beside everything else: freed and fresh memory is poisoned.
TEST_F(Parity, Offload) {
  int cases = 0;
  for (const char* schedule : {"stp", "zb-v", "1f1b-i", "dualpipev"})
    for (const Variant& variant : offloading())
      check({schedule, 1 + ++cases % 2, variant.zero ? 2 : 1, 2, 8}, DType::f64, variant);
}
// Each copy of the model has the gradients of all samples: else the steps that follow would have other losses
// than one pipeline's. Gradients are those of the copies that lie on higher ranks.
TEST_F(Parity, TwoPipelines) {
  for (const int pp : {2, 4})
    for (const int tp : {1, 2})
      for (const bool replicated : {false, true}) {
        if (!sampled()) continue;
        std::vector<int> layers{2, 1, 0, 3};
        layers.resize(pp);
        const int dp = replicated ? 2 : 1, m = 2 * pp + 2 * tp;
        const Variant variant{.release = replicated ? Release::block : Release::chain,
                              .sequence_parallel = replicated,
                              .zero = replicated && tp == 1};
        expect_step({"dualpipe", tp, dp, pp, m}, DType::f64, variant, layers);
        const auto run = [&](const char* name) {
          const Schedule schedule = make_schedule(find_generator(name), {pp, m});
          const RankGrid grid{.tp = tp, .dp = dp, .pp = pp};
          auto [training, program] = prepare(schedule, grid, DType::f64, variant, layers);
          return std::make_unique<OnCpu>(training, std::move(program));
        };
        const auto two = run("dualpipe"), one = run("1f1b");
        for (uint32_t step = 1; step <= 4; ++step) {
          const double expected = one->step(step).loss;
          EXPECT_NEAR(two->step(step).loss, expected, 1e-10 * expected);
        }
      }
}

// Both copies of a rank on one stream, which waits for its neighbour's.
TEST_F(Parity, PlannedOffload) {
  for (const char* schedule : {"uniform", "gis", "stp", "dualpipev"})
    for (const int chunks : {1, 2})
      for (const Release release : {Release::chain, Release::released})
        for (const std::vector<int>& layers : {std::vector<int>{}, {2, 0, 1, 1, 0, 1, 1, 2}})
          check({schedule, chunks, 1, 4, 12}, DType::f64,
                {.release = release, .offload = chunks == 1 ? 1 : 0.6, .offload_chunks = chunks}, layers);
}
TEST_F(Parity, OffloadOfEachKind) {
  for (const Generator* generator : of_each_kind())
    for (const int pp : {1, 2, 4})
      check({generator->name, 1, 1, pp, 3 * pp + 1}, DType::f32, {.offload = 0.7});
}

// Orders of other authors' generators, as files.
TEST_F(Parity, GoldenOrders) {
  int orders = 0;
  for (const auto& [file, data, schedule] : golden_orders()) {
    if (schedule.pp() > 4 || schedule.microbatches > 16) continue;
    ++orders;
    if (sampled()) expect_step_of(schedule, {file, 2, 1, schedule.pp(), schedule.microbatches}, DType::f64);
  }
  EXPECT_GE(orders, 30);
}

// Each option with one of its schedules in turn: the tests above have them all, and bf16 changes bytes alone.
// With three replicas where they share anything: their shares end within parameters.
TEST_F(Parity, EveryOptionInBf16) {
  const std::pair<std::vector<const char*>, std::vector<Variant>> all[] = {
      {{"zb-v"}, context_parallel(0)},
      {{"stp"}, context_parallel(1)},
      {{"stp", "zb-v", "1f1b-i"}, with_overlap()},
      {{"stp", "zb-v", "1f1b-i", "dualpipev"}, with_vision()},
      {{"stp", "zb-v", "1f1b-i", "1f1b"},
       {{.sequence_parallel = true, .post_validation = true},
        {.sequence_parallel = true, .zero = true, .post_validation = true}}},
      {{"stp", "1f1b"}, with_buckets()},
      {{"stp", "1f1b-i", "gpipe"}, offloading()}};
  for (const auto& [schedules, variants] : all)
    for (size_t i = 0; i < std::max(schedules.size(), variants.size()); ++i) {
      const Variant& variant = variants[i % variants.size()];
      const bool shared = variant.context_parallel == 1 && (variant.zero || variant.bucket_size > 0);
      check({schedules[i % schedules.size()], std::max(2, variant.overlapped), shared ? 3 : 1, 2,
             variant.offload > 0 ? 8 : 4},
            DType::bf16, variant);
    }
}

TEST_F(Parity, UnevenChunksWithEveryOption) {
  for (const char* name : {"stp", "zb-v", "1f1b-i"})
    for (const Release release : {Release::block, Release::released})
      for (const bool sequence_parallel : {false, true})
        for (const auto& [recomputed, recompute] : kRecomputes)
          check({name, 2, 1, 2, 8}, DType::f32,
                {BackwardOrder::megatron, release, sequence_parallel, recompute}, {0, 2, 1, 1});
}

TEST_F(Parity, RandomDivisionsOfTheLayers) {
  std::mt19937 random(20);
  for (int i = 0; i < 40; i += kStride) {
    const Generator* generator = generators()[random() % generators().size()];
    const int pp = 1 + static_cast<int>(random() % 3), m = 2 * pp + static_cast<int>(random() % 4);
    std::vector<int> layers = random_layers(random, pp * generator->chunks);
    if (std::accumulate(layers.begin(), layers.end(), 0) == 0) layers[0] = 1;
    Variant variant{random() % 2 == 0 ? BackwardOrder::suite : BackwardOrder::megatron,
                    kReleases[random() % std::size(kReleases)]};
    variant.sequence_parallel = random() % 2 == 0;
    variant.recompute = kRecomputes[random() % std::size(kRecomputes)].choice;
    variant.context_parallel = 1 + static_cast<int>(random() % 2);
    variant.cp_method = kCpMethods[random() % 2];
    const int tp = 1 << random() % 3;
    if (variant.sequence_parallel && random() % 2 == 0) variant.overlapped = tp;
    expect_step({generator->name, tp, 1, pp, m}, DType::f64, variant, layers);
  }
}

// Large shards are filled by several threads.
TEST(Training, LargeShardsBeginAsTheReferenceDoes) {
  auto training = small_training(2, DType::f64, {.tp = 2});
  training.model.hidden = 1024;
  training.model.vocab = 4100;  // 2.1 million elements, rows that threads do not divide evenly
  OnCpu run(training, program_of("1f1b", training.grid, 1, 2));
  const auto exact = reference::initial_parameters(training.model, training.initialisation);
  EXPECT_EQ(run.trainer.weights().at("embedding.weight"), exact.at("embedding.weight"));
}

// Several steps with clipping and decay: weights stay those of the plain trainer.
void expect_weights_follow(const std::string& schedule, int dp, const Variant& variant) {
  SCOPED_TRACE(schedule + " dp " + std::to_string(dp) + " " + to_string(variant));
  auto [training, program] =
      prepare(make_schedule(find_generator(schedule), {2, 4}),
              {.tp = 2, .cp = variant.context_parallel, .dp = dp, .pp = 2}, DType::f64, variant);
  training.optimizer = {.learning_rate = 0.01, .weight_decay = 0.1};
  training.clip_norm = 0.2;
  OnCpu run(training, std::move(program), {.deadline_s = 20, .poison = true});
  PlainTraining plain(training);
  for (int step = 1; step <= 4; ++step) {
    const auto exact = plain.step(run.samples(step));
    EXPECT_GT(reference::global_norm(exact.gradients), training.clip_norm) << "nothing is clipped";
    EXPECT_NEAR(run.step(step).loss, exact.loss, 1e-10) << "step " << step;
  }
  // Adam's first steps divide tiny gradients by their own size, which magnifies the last bits.
  EXPECT_LE(gradient_error(run.trainer.weights(), plain.weights()), 1e-8);
}

// Llama's.
const ModelVariant kWithoutBiases{.biases = Biases::none};
TEST_F(Parity, ModelsWithoutBiases) {
  for (const char* schedule : {"stp", "zb-v", "1f1b"})
    for (const int tp : {1, 2})
      for (const bool sequence_parallel : {false, true}) {
        const Recompute recompute{.qkv = sequence_parallel, .mlp = sequence_parallel};
        expect_step(
            {schedule, tp, 1, 2, 4}, DType::f64,
            {.sequence_parallel = sequence_parallel, .recompute = recompute, .model = kWithoutBiases});
        expect_step({schedule, tp, 2, 2, 4}, DType::f64,
                    {.zero = true, .context_parallel = tp, .model = kWithoutBiases});
      }
  expect_step({"stp", 2, 1, 2, 4}, DType::bf16, {.model = kWithoutBiases});
}

// Each model meets every kind of option, and every option some of the models.
TEST_F(Parity, OtherModels) {
  std::vector<Variant> variants{
      {}, {.release = Release::released, .zero = true}, {.halves = true}, {.offload = 0.6}};
  for (const auto& more : {sharded_or_recomputed(), context_parallel(0), with_overlap()})
    for (const Variant& variant : more)
      if (variant.context_parallel < 4) variants.push_back(variant);
  const char* const schedules[] = {"stp", "zb-v", "1f1b-i"};
  size_t next = 0;
  for (const Variant& model : of_other_models())
    for (size_t i = next++ % 3; i < variants.size(); i += 3) {
      Variant variant = variants[i];
      variant.model = model.model;
      variant.positions = model.positions;
      check({schedules[i % std::size(schedules)],
             std::max(variant.sequence_parallel || i % 2 == 0 ? 2 : 1, variant.overlapped),
             variant.zero ? 2 : 1, 2, 4},
            DType::f64, variant);
    }
}

// First and last stage are on two ranks, on one, and in one chunk.
const ModelVariant kTied{.biases = Biases::none, .tied = true};
TEST_F(Parity, TiedHeads) {
  for (const char* schedule : {"1f1b", "1f1b-i", "stp", "zb-v"})
    for (const int tp : {1, 2})
      for (const int pp : {1, 2}) {
        if (!sampled()) continue;
        expect_step({schedule, tp, 1, pp, 4}, DType::f64, {.model = kTied});
        expect_step({schedule, tp, 2, pp, 4}, DType::f32, {.sequence_parallel = tp > 1, .model = kTied});
        expect_step({schedule, tp, 1, pp, 4}, DType::f64,
                    {.recompute = {.layer = true}, .context_parallel = 2, .model = kTied});
        expect_step({schedule, tp, 3, pp, 4}, DType::f64, {.zero = true, .model = kTied});
      }
  expect_step({"1f1b-i", 2, 2, 2, 4}, DType::f64, {.vision_layers = 2, .model = kTied});
  for (const bool zero : {false, true})
    expect_step({"1f1b", 2, 2, 2, 4}, DType::f64, {.zero = zero, .bucket_size = 1, .model = kTied});
  expect_step({"1f1b", 2, 1, 2, 4}, DType::bf16, {.model = kTied});
}

TEST(Training, WeightsFollowTheReference) {
  expect_weights_follow("stp", 2, {});
  expect_weights_follow("stp", 2, {.model = kWithoutBiases});
  expect_weights_follow("stp", 1, {.context_parallel = 2});
  expect_weights_follow("stp", 1, {.zero = true, .context_parallel = 2});
  expect_weights_follow("zb-v", 1, {.sequence_parallel = true, .context_parallel = 2, .overlapped = 2});
  Sample sampled;
  for (const char* schedule : {"stp", "1f1b-i"})
    for (const int dp : {1, 2})
      for (const bool zero : {false, true})
        if (sampled()) expect_weights_follow(schedule, dp, {.zero = zero && dp > 1, .model = kTied});
  for (const Variant& model : of_other_models())
    if (sampled())
      expect_weights_follow("stp", 2, {.zero = true, .model = model.model, .positions = model.positions});
}

TEST(Training, WeightsOfAVisionEncoderFollowTheReference) {
  Sample sampled;
  for (const char* schedule : {"stp", "zb-v", "1f1b-i", "dualpipev"})
    for (const bool zero : {false, true})
      if (sampled()) expect_weights_follow(schedule, 2, {.zero = zero, .vision_layers = 2});
}

// Shares of three replicas end within parameters, and in those that tensor parallelism does not divide.
TEST(Training, WeightsOfZeroFollowTheReference) {
  Sample sampled;
  for (const char* schedule : {"stp", "zb-v", "1f1b-i", "dualpipev"})
    for (const int dp : {2, 3})
      for (const auto& [sequence_parallel, recompute] :
           {std::pair{false, Recompute{}},
            {true, {.layer = true}},
            {true, {.core = true, .qkv = true, .mlp = true, .activation = true, .norm = true}}})
        if (sampled())
          expect_weights_follow(
              schedule, dp, {.sequence_parallel = sequence_parallel, .recompute = recompute, .zero = true});
}

TEST(Training, WeightsOfBucketsFollowTheReference) {
  Sample sampled;
  for (const Variant& variant : with_buckets())
    if (variant.context_parallel == 1 && variant.overlapped == 1 && !variant.post_validation && sampled())
      expect_weights_follow("stp", variant.zero ? 3 : 2, variant);
}

}  // namespace
}  // namespace stp
