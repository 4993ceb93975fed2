// Training goes on from a checkpoint as if it had not been interrupted: bit by bit on the same ranks, and on
// others within rounding.
#include "stp/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "stp/base/json_input.h"
#include "stp/model/hugging_face.h"
#include "support/folder.h"
#include "support/refusal.h"
#include "support/training.h"

namespace stp {
namespace {

using namespace testing_support;
using testing::HasSubstr;

constexpr int kLayers = 4;
constexpr Trained kAllTrained[] = {Trained::weights, Trained::masters, Trained::first_moments,
                                   Trained::second_moments};

// Eight samples a step on every grid.
OnCpu run_on(const RankGrid& grid, const std::string& schedule, DType type, const Variant& variant = {}) {
  const auto training = small_training(kLayers, type, grid);
  return {training, program_of(schedule, grid, 4 / grid.dp, kLayers, variant)};
}
OnCpu two_by_two(DType type) { return run_on({.tp = 2, .pp = 2}, "stp", type); }

class Checkpoints : public FolderTest {
 protected:
  void save(OnCpu& run, int updates, const std::string& name = "", int64_t largest = 1 << 30) const {
    const std::string folder = folder_ + "/" + (name.empty() ? checkpoint_name(updates) : name);
    std::filesystem::create_directory(folder);
    write_checkpoint(run.trainer, run.training, {updates, 8 * updates}, folder, true, largest);
  }
  void resume(OnCpu& run) const { Checkpoint(folder_, run.training.model).restore(run.trainer); }
};

TEST_F(Checkpoints, TrainingGoesOnBitByBit) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
    OnCpu run = two_by_two(type), resumed = two_by_two(type);
    run.step(1);
    std::filesystem::remove_all(folder_ + "/step-1");
    save(run, 1);
    resume(resumed);
    for (const uint32_t seed : {2, 3})
      EXPECT_EQ(resumed.step(seed).loss, run.step(seed).loss) << to_string(type);
    for (const Trained which : kAllTrained)
      EXPECT_EQ(resumed.trainer.trained(which), run.trainer.trained(which)) << to_string(type);
  }
}

TEST_F(Checkpoints, TrainingGoesOnOnOtherRanks) {
  OnCpu run = two_by_two(DType::f64);
  run.step(1);
  save(run, 1, "step-1", 3000);
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/step-1/optimizer.safetensors.index.json"));
  const double loss = run.step(2).loss;
  const Matrices weights = run.trainer.weights(), moments = run.trainer.trained(Trained::second_moments);
  const auto expect_the_same = [&](OnCpu other) {
    resume(other);
    EXPECT_NEAR(other.step(2).loss, loss, 1e-10 * loss);
    EXPECT_LE(gradient_error(other.trainer.weights(), weights), 1e-10);
    EXPECT_LE(gradient_error(other.trainer.trained(Trained::second_moments), moments), 1e-10);
  };
  expect_the_same(run_on({.tp = 1, .pp = 1}, "1f1b", DType::f64));
  expect_the_same(run_on({.tp = 4, .pp = 2}, "zb-h1", DType::f64, {.sequence_parallel = true}));
  expect_the_same(run_on({.tp = 1, .dp = 2, .pp = 2}, "stp", DType::f64, {.zero = true}));
  expect_the_same(run_on({.tp = 1, .pp = 4}, "1f1b", DType::f64, {.recompute = {.layer = true}}));
}

// Training may fill the device.
TEST_F(Checkpoints, WhatReplicasShareIsGatheredWithoutFurtherMemory) {
  const auto make = [] { return run_on({.dp = 2, .pp = 2}, "stp", DType::bf16, {.zero = true}); };
  OnCpu run = make(), other = make();
  const size_t peak = run.trainer.use().front().peak_total;
  for (const Trained which : kAllTrained) EXPECT_FALSE(run.trainer.trained(which).empty());
  EXPECT_EQ(run.trainer.use().front().peak_total, peak);
  for (const uint32_t seed : {1, 2}) {
    EXPECT_EQ(run.step(seed).loss, other.step(seed).loss);
    const Matrices gradients = run.trainer.gradients();
    EXPECT_FALSE(run.trainer.trained(Trained::first_moments).empty());
    EXPECT_EQ(gradients, other.trainer.gradients());
  }
}

// GPT-2's tensors are transposed, and q, k and v are one; with q/k norms, Qwen3's.
TEST_F(Checkpoints, OtherModelsGoOnOnOtherRanks) {
  for (const Variant& model : of_other_models()) {
    const auto run_of = [&](const RankGrid& grid, const std::string& schedule, bool zero) {
      const Variant variant{.zero = zero, .model = model.model, .positions = model.positions};
      auto training = small_training(kLayers, DType::f64, grid);
      training.model.head_dim = 2;  // as GPT-2, whose heads fill the hidden size
      training.model.kv_heads = 8;
      divide_samples(training, variant);
      return std::make_unique<OnCpu>(training, program_of(schedule, grid, 4 / grid.dp, kLayers, variant));
    };
    const auto run = run_of({.tp = 2, .pp = 2}, "stp", false),
               other = run_of({.dp = 2, .pp = 2}, "1f1b", true);
    const std::string lack = refusal([&] { check_hugging_face_has(run->training.model, "--save"); });
    EXPECT_EQ(lack == "", model.positions > 0
                              ? model.model.norm == std::nullopt
                              : model.model.query_key_norm && model.model.biases == Biases::none)
        << lack;
    if (!lack.empty()) continue;
    run->step(1);
    std::filesystem::remove_all(folder_ + "/step-1");
    save(*run, 1);
    resume(*other);
    const double loss = run->step(2).loss;
    EXPECT_NEAR(other->step(2).loss, loss, 1e-10 * loss);
    EXPECT_LE(gradient_error(other->trainer.weights(), run->trainer.weights()), 1e-10);
  }
}

// Process 0 writes alone, for as long as its disk takes, while the others wait for its next step.
TEST_F(Checkpoints, NoDeadlineExpiresWhileOneIsWritten) {
  OnCpu run = two_by_two(DType::f64);
  std::filesystem::create_directory(folder_ + "/step-1");
  for (const char* stem : {"model", "optimizer"})
    ASSERT_EQ(mkfifo((folder_ + "/step-1/" + stem + ".safetensors").c_str(), 0600), 0);
  std::thread writing([&] { write_checkpoint(run.trainer, run.training, {}, folder_ + "/step-1", true); });
  for (const char* stem : {"model", "optimizer"}) {
    std::ifstream pipe(folder_ + "/step-1/" + stem + ".safetensors");
    pipe.peek();  // until a part is written; the rest, more than a pipe takes, waits
    EXPECT_TRUE(run.backend->guard().working()) << stem;
    pipe.ignore(std::numeric_limits<std::streamsize>::max());
  }
  writing.join();
}

// Processes read alone, and the first that is done waits for the others' next step.
TEST_F(Checkpoints, NoDeadlineExpiresWhileOneIsRead) {
  OnCpu run = two_by_two(DType::f64);
  run.trainer.restore(Trained::weights, [&](MatrixShard&) { EXPECT_TRUE(run.backend->guard().working()); });
}

// Another's model has no training.json.
TEST_F(Checkpoints, WithoutAnOptimizersStateTrainingBegins) {
  OnCpu run = two_by_two(DType::f64), begun = two_by_two(DType::f32);
  save(run, 0, "theirs");
  std::filesystem::remove(folder_ + "/theirs/training.json");
  EXPECT_THAT(refusal([&] { const Checkpoint half(folder_ + "/theirs", run.training.model); }),
              HasSubstr("training.json: is missing beside the optimizer's state"));
  std::filesystem::remove(folder_ + "/theirs/optimizer.safetensors");
  const Checkpoint theirs(folder_ + "/theirs", run.training.model);
  EXPECT_FALSE(theirs.has_optimizer_state());
  EXPECT_EQ(theirs.progress().updates, 0);
  theirs.restore(begun.trainer);
  EXPECT_LE(gradient_error(begun.trainer.weights(), run.trainer.weights()), 1e-7);
}

TEST_F(Checkpoints, RefusalsNameFileAndTensor) {
  OnCpu run = two_by_two(DType::f64);
  save(run, 9, "step-9", 20000);
  save(run, 10, "step-10", 20000);
  const auto expect_refused = [&](const std::string& folder, const ModelConfig& model,
                                  const std::vector<std::string>& words) {
    const std::string why = refusal([&] { const Checkpoint opened(folder, model); });
    for (const std::string& word : words) EXPECT_THAT(why, HasSubstr(word));
  };
  ModelConfig model = run.training.model;
  EXPECT_EQ(Checkpoint(folder_, model).progress().updates, 10);
  expect_refused(folder_ + "/none", model, {"none", "--resume"});
  model.layers = 5;
  expect_refused(folder_, model, {"step-10/model", "model.layers.4.", "is missing"});
  model.layers = 3;
  expect_refused(folder_, model, {"step-10/model", "model.layers.3.", "is no tensor"});
  model.layers = kLayers;
  model.norm_epsilon = 0.25;
  expect_refused(folder_, model, {"step-10/config.json", "eps", ", but " + model.name + " has 0.25"});
  model = run.training.model;
  model.ffn = 32;
  expect_refused(folder_, model, {"step-10/model-0000", "mlp.down_proj.weight.shape: is [16,24]", "[16,32]"});

  const std::string path = folder_ + "/step-10/model.safetensors.index.json";
  const nlohmann::json index = read_json_file(path);
  const std::string first = index["weight_map"]["lm_head.weight"];
  const auto with_map = [&](const std::string& name, const std::string& file,
                            const std::vector<std::string>& words) {
    nlohmann::json changed = index;
    changed["weight_map"][name] = file;
    std::ofstream(path) << changed.dump();
    expect_refused(folder_, run.training.model, words);
  };
  with_map("lm_head.weight", "../step-9/" + first, {path, "lm_head.weight", "names no file beside"});
  with_map("lm_head.weight", "none.safetensors", {"none.safetensors", "cannot be read"});
  with_map("lm_head.bias", first, {path, "lm_head.bias", "is not in " + first});
  nlohmann::json fewer = index;
  fewer["weight_map"].erase("lm_head.weight");
  std::ofstream(path) << fewer.dump();
  expect_refused(folder_, run.training.model, {first, "lm_head.weight", "is not there by"});
}

// What another process sends in place of shards, such as the text of another call.
TEST(MatrixShards, AreNotReadBeyondTheirText) {
  const MatrixShard shard{"w", 2, 3, 1, 1, 0, 2, {}};
  const std::vector<double> values{4, 5};
  std::string bytes;
  append(bytes, shard, std::as_bytes(std::span(values)));
  Matrices whole;
  add_all(whole, bytes);
  EXPECT_EQ(whole, (Matrices{{"w", {0, 0, 0, 4, 5, 0}}}));
  for (size_t size = 1; size < bytes.size(); ++size)
    EXPECT_THROW(add_all(whole, std::string_view(bytes).substr(0, size)), std::runtime_error) << size;
  EXPECT_THROW(add_all(whole, std::string(100, '{')), std::runtime_error);
  for (size_t field = 0; field < 7; ++field)
    for (const int64_t wrong : {int64_t{-1}, int64_t{1} << 40}) {
      std::string other = bytes;
      other.replace(field * sizeof wrong, sizeof wrong, reinterpret_cast<const char*>(&wrong), sizeof wrong);
      EXPECT_THROW(add_all(whole, other), std::runtime_error) << field;
    }
}

TEST_F(Checkpoints, ValuesThatNoTrainingHasAreRefused) {
  OnCpu saved = two_by_two(DType::f64);
  save(saved, 1);
  const auto expect_refused = [&](const std::string& stem, const std::string& name, double value,
                                  DType type = DType::f64, const std::string& why = "") {
    const std::string path = folder_ + "/step-1/" + stem + ".safetensors";
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    double kept = 0;
    const auto at = SafetensorsFile(path).tensors().at(name).begin;
    file.seekg(at).read(reinterpret_cast<char*>(&kept), sizeof kept);
    file.seekp(at).write(reinterpret_cast<const char*>(&value), sizeof value).flush();
    OnCpu run = two_by_two(type);
    EXPECT_THAT(refusal([&] { resume(run); }), HasSubstr(path + ": " + name + ": has a value of " + why));
    file.seekp(at).write(reinterpret_cast<const char*>(&kept), sizeof kept);
  };
  const std::string q = "model.layers.0.self_attn.q_proj.weight",
                    down = "model.layers.3.mlp.down_proj.weight";
  for (const double value : std::initializer_list<double>{INFINITY, -INFINITY, NAN}) {
    expect_refused("model", "lm_head.weight", value);
    expect_refused("optimizer", "first_moment." + q, value);
    expect_refused("optimizer", "second_moment." + down, value);
  }
  expect_refused("optimizer", "second_moment." + down, -1e-9);
  const std::string beyond = "1e+39, and the largest of f32 is 3.40282e+38; use another run.type";
  expect_refused("model", "lm_head.weight", 1e39, DType::f32, beyond);
  expect_refused("optimizer", "second_moment." + down, 1e39, DType::f32, beyond);
  expect_refused("optimizer", "first_moment." + q, -1e39, DType::bf16, "-" + beyond);
  expect_refused("model", "lm_head.weight", 3.4e38, DType::bf16, "3.4e+38, and the largest of bf16 is");
}

}  // namespace
}  // namespace stp
