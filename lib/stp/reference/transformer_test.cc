#include "stp/reference/transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "stp/reference/vision_encoder.h"
#include "support/effort.h"
#include "support/reference_adamw.h"

namespace stp::reference {
namespace {

ModelConfig tiny() {
  ModelConfig model{};
  model.name = "tiny";
  model.layers = 2;
  model.hidden = 8;
  model.ffn = 12;
  model.q_heads = 4;
  model.kv_heads = 2;
  model.head_dim = 4;
  model.vocab = 11;
  return model;
}

const Initialisation kStart{.seed = 7, .weight_deviation = 0.3, .bias_deviation = 0.2, .gain_deviation = 0.2};

ModelConfig tiny_with_vision() {
  ModelConfig model = tiny();
  model.layers = 1;
  model.vision = {.layers = 2, .hidden = 12, .heads = 3, .ffn = 20};
  return model;
}

// Values as of pixels.
std::vector<float> patches(int count, uint32_t state) {
  std::vector<float> values(static_cast<size_t>(count) * kPatchElements);
  for (float& value : values)
    value = static_cast<float>((state = state * 1664525 + 1013904223) >> 24) / 128 - 1;
  return values;
}

std::vector<TokenSample> samples(int count, int seq, int vocab) {
  std::vector<TokenSample> all;
  uint32_t state = 12345;
  const auto next = [&] { return static_cast<int32_t>((state = state * 1664525 + 1013904223) >> 8) % vocab; };
  for (int i = 0; i < count; ++i) {
    TokenSample sample;
    for (int s = 0; s < seq; ++s) {
      sample.tokens.push_back(next());
      sample.targets.push_back(next());
    }
    all.push_back(sample);
  }
  return all;
}

void expect_gradients_of_central_differences(const ModelConfig& model, const std::vector<TokenSample>& data,
                                             size_t count) {
  Parameters parameters = initial_parameters(model, kStart);
  const auto exact = loss_and_gradients(model, parameters, data);
  ASSERT_EQ(exact.gradients.size(), count);
  for (auto& [name, values] : parameters) {
    const std::vector<double>& gradient = exact.gradients.at(name);
    double largest = 0;
    for (const double g : gradient) largest = std::max(largest, std::abs(g));
    // Without rotation a bias of k moves all scores of a query alike.
    EXPECT_EQ(largest > 1e-6, model.rotary() || !name.ends_with("attn.k.bias")) << name;
    for (size_t i = 0; i < values.size(); i += 1 + values.size() / (kStride > 1 ? 4 : 17)) {
      const double at = values[i], h = 1e-5;
      values[i] = at + h;
      const double up = loss_and_gradients(model, parameters, data).loss;
      values[i] = at - h;
      const double down = loss_and_gradients(model, parameters, data).loss;
      values[i] = at;
      EXPECT_NEAR((up - down) / (2 * h), gradient[i], 1e-6 * std::max(largest, 1e-3)) << name << " " << i;
    }
  }
}

TEST(Reference, GradientsAreThoseOfCentralDifferences) {
  expect_gradients_of_central_differences(tiny(), samples(2, 5, 11), 3 + 2 * 12);
}

TEST(Reference, GradientsOfOtherModelsAreThoseOfCentralDifferences) {
  for (const Activation activation : {Activation::gelu, Activation::gelu_tanh, Activation::squared_relu}) {
    ModelConfig gpt = tiny();
    gpt.family = Family::gpt;
    gpt.positions = 7;
    gpt.variant.activation = activation;
    // Embedding, positions and the last norm: 4. A layer: 10 of attn and 6 of the MLP.
    expect_gradients_of_central_differences(gpt, samples(2, 5, 11), 4 + 2 * 16);
  }
  ModelConfig other = tiny();
  other.variant = {.norm = Norm::layer_without_bias, .biases = Biases::none, .query_key_norm = true};
  expect_gradients_of_central_differences(other, samples(2, 5, 11), 3 + 2 * 11);
}

// Of the encoder's layers: 10 of attn and 6 of the MLP; of its merger 6, and the patches'.
TEST(Reference, GradientsOfAVisionEncoderAreThoseOfCentralDifferences) {
  std::vector<TokenSample> data = samples(2, 5, 11);
  for (size_t i = 0; i < data.size(); ++i) data[i].patches = patches(12, static_cast<uint32_t>(i));
  expect_gradients_of_central_differences(tiny_with_vision(), data, 3 + 12 + 2 * (10 + 6) + 6 + 1);
}

// The image stands in place of the first three tokens; all its patches see each other.
TEST(Reference, AnImageReplacesTheFirstTokens) {
  const ModelConfig model = tiny_with_vision();
  const Parameters parameters = initial_parameters(model, kStart);
  TokenSample sample = samples(1, 5, model.vocab)[0];
  sample.patches = patches(12, 1);
  const auto loss = [&](const TokenSample& of) { return loss_and_gradients(model, parameters, {of}).loss; };
  const double before = loss(sample);
  for (int token = 0; token < 5; ++token) {
    TokenSample changed = sample;
    changed.tokens[token] = (changed.tokens[token] + 1) % model.vocab;
    EXPECT_EQ(loss(changed) == before, token < 3) << token;
  }
  const auto first_token = [&](const TokenSample& of) {
    return VisionEncoder(model, parameters, of.patches).forward()[0];
  };
  TokenSample changed = sample;
  changed.patches.back() += 1;
  EXPECT_NE(first_token(changed), first_token(sample));
}

TEST(Reference, AFirstStepIsThatOfItsOwnModelStartAndSamples) {
  ModelConfig model = tiny();
  Initialisation start = kStart;
  std::vector<TokenSample> data = samples(1, 4, model.vocab);
  const auto expect_own = [&] {
    const auto exact = loss_and_gradients(model, initial_parameters(model, start), data);
    for (int again = 0; again < 2; ++again) {
      const LossAndGradients& kept = first_step(model, start, data);
      EXPECT_EQ(kept.loss, exact.loss);
      EXPECT_EQ(kept.gradients, exact.gradients);
    }
  };
  expect_own();
  data[0].targets[3] = (data[0].targets[3] + 1) % model.vocab;
  expect_own();
  ++start.seed;
  expect_own();
  model.norm_epsilon *= 10;
  expect_own();
}

TEST(Reference, UniformLogitsLoseTheLogarithmOfTheVocabulary) {
  const ModelConfig model = tiny();
  Parameters parameters = initial_parameters(model, kStart);
  parameters.at("head.weight").assign(parameters.at("head.weight").size(), 0);
  EXPECT_NEAR(loss_and_gradients(model, parameters, samples(3, 4, model.vocab)).loss, std::log(11), 1e-12);
}

TEST(Reference, LaterTokensDoNotChangeEarlierLosses) {
  const ModelConfig model = tiny();
  const Parameters parameters = initial_parameters(model, kStart);
  TokenSample whole = samples(1, 6, model.vocab)[0], changed = whole;
  changed.tokens[5] = (changed.tokens[5] + 1) % model.vocab;
  const auto loss_of_first = [&](TokenSample sample, size_t count) {
    sample.tokens.resize(count);
    sample.targets.resize(count);
    return loss_and_gradients(model, parameters, {sample}).loss * static_cast<double>(count);
  };
  // The first five losses of the changed sample are all but its last one.
  const double last = loss_of_first(whole, 6) - loss_of_first(whole, 5);
  const double changed_last = loss_of_first(changed, 6) - loss_of_first(changed, 5);
  EXPECT_DOUBLE_EQ(loss_of_first(whole, 5), loss_of_first(changed, 5));
  EXPECT_NE(last, changed_last);
}

TEST(Reference, SamplesAddUp) {
  const ModelConfig model = tiny();
  const Parameters parameters = initial_parameters(model, kStart);
  const auto data = samples(3, 4, model.vocab);
  const auto all = loss_and_gradients(model, parameters, data);
  double loss = 0;
  Parameters sum;
  for (const TokenSample& sample : data) {
    const auto one = loss_and_gradients(model, parameters, {sample});
    loss += one.loss / 3;
    for (const auto& [name, values] : one.gradients) {
      sum[name].resize(values.size());
      for (size_t i = 0; i < values.size(); ++i) sum[name][i] += values[i] / 3;
    }
  }
  EXPECT_NEAR(all.loss, loss, 1e-12);
  for (const auto& [name, values] : all.gradients)
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], sum[name][i], 1e-12) << name;
}

TEST(Reference, AdamWFollowsItsDefinitionForOneParameter) {
  Parameters parameters{{"w", {2.0}}}, gradients{{"w", {4.0}}};
  AdamWState state;
  const AdamWOptions options{
      .learning_rate = 0.1, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 0, .weight_decay = 0.5, .max_norm = 1};
  adamw_step(options, gradients, parameters, state);
  // The first step of Adam has the gradient's sign and length 1, whatever the clipping.
  EXPECT_NEAR(parameters["w"][0], 2.0 - 0.1 * 0.5 * 2.0 - 0.1, 1e-12);
  EXPECT_NEAR(state.first["w"][0], 0.1 * 1.0, 1e-12);
  EXPECT_NEAR(state.second["w"][0], 0.01 * 1.0, 1e-12);
}

}  // namespace
}  // namespace stp::reference
