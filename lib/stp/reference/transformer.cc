#include "stp/reference/transformer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "stp/reference/layers.h"
#include "stp/reference/units.h"
#include "stp/reference/vision_encoder.h"

namespace stp::reference {
namespace {

// The forward of one sample, with the tensors for its backward.
class SampleRun {
 public:
  SampleRun(const ModelConfig& model, const Parameters& parameters, const TokenSample& sample)
      : model_(model),
        parameters_(parameters),
        sample_(sample),
        seq_(static_cast<int>(sample.tokens.size())),
        h_(model.hidden),
        units_(model, parameters) {
    if (model.has_vision()) vision_.emplace(model, parameters, sample.patches);
  }

  // The summed cross-entropy of the sample.
  double forward() {
    Matrix x(seq_ * h_);
    const Matrix& table = parameters_.at("embedding.weight");
    for (int s = 0; s < seq_; ++s)
      for (int64_t i = 0; i < h_; ++i)
        x[s * h_ + i] = table[sample_.tokens[s] * h_ + i] +
                        (model_.positions > 0 ? parameters_.at(kPositions)[s * h_ + i] : 0);
    if (vision_) {  // in place of the first tokens
      const Matrix image = vision_->forward();
      image_elements_ = std::ssize(image);
      std::ranges::copy(image, x.begin());
    }
    attentions_.resize(model_.layers);
    mlps_.resize(model_.layers);
    for (int layer = 0; layer < model_.layers; ++layer) {
      x = plus(units_.attention_forward(name(layer, "attn"), attentions_[layer], x), x);
      x = plus(units_.mlp_forward(name(layer, "mlp"), mlps_[layer], x), x);
    }
    units_.norm_forward("head", head_norm_, x);
    probabilities_ = linear(head_norm_.output, parameters_.at(head_name()), h_, model_.vocab);
    double loss = 0;
    for (int s = 0; s < seq_; ++s) {
      double* row = probabilities_.data() + int64_t{s} * model_.vocab;
      const double largest = *std::max_element(row, row + model_.vocab);
      double sum = 0;
      for (int i = 0; i < model_.vocab; ++i) sum += std::exp(row[i] - largest);
      loss += std::log(sum) + largest - row[sample_.targets[s]];
      for (int i = 0; i < model_.vocab; ++i) row[i] = std::exp(row[i] - largest) / sum;
    }
    return loss;
  }

  // Adds `factor` times the gradients of forward()'s value.
  void backward(double factor, Parameters& gradients) {
    Matrix d = probabilities_;
    for (int s = 0; s < seq_; ++s) d[int64_t{s} * model_.vocab + sample_.targets[s]] -= 1;
    for (double& value : d) value *= factor;
    d = linear_backward(d, head_norm_.output, parameters_.at(head_name()), h_, model_.vocab,
                        gradients.at(head_name()));
    d = units_.norm_backward("head", head_norm_, d, gradients);
    for (int layer = model_.layers - 1; layer >= 0; --layer) {
      d = plus(units_.mlp_backward(name(layer, "mlp"), mlps_[layer], d, gradients), d);
      d = plus(units_.attention_backward(name(layer, "attn"), attentions_[layer], d, gradients), d);
    }
    if (model_.positions > 0)
      for (int64_t i = 0; i < seq_ * h_; ++i) gradients.at(kPositions)[i] += d[i];
    Matrix& table = gradients.at("embedding.weight");
    for (int64_t s = image_elements_ / h_; s < seq_; ++s)
      for (int64_t i = 0; i < h_; ++i) table[sample_.tokens[s] * h_ + i] += d[s * h_ + i];
    if (vision_) vision_->backward({d.begin(), d.begin() + image_elements_}, gradients);
  }

 private:
  static constexpr const char* kPositions = "embedding.positions.weight";

  static std::string name(int layer, const char* part) {
    return "layers." + std::to_string(layer) + "." + part;
  }
  [[nodiscard]] const char* head_name() const { return model_.tied() ? "embedding.weight" : "head.weight"; }

  const ModelConfig& model_;
  const Parameters& parameters_;
  const TokenSample& sample_;
  const int seq_;
  const int64_t h_;
  const Units units_;
  std::optional<VisionEncoder> vision_;
  int64_t image_elements_ = 0;                // of the language model's input
  std::vector<Units::Attention> attentions_;  // by layer
  std::vector<Units::Mlp> mlps_;
  Units::Norm head_norm_;
  Matrix probabilities_;
};

double norm(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

}  // namespace

Parameters initial_parameters(const ModelConfig& model, const Initialisation& initialisation) {
  Parameters parameters;
  for (const auto& [name, part] : model_parameters(model)) {
    Matrix& values = parameters[name];
    values.resize(static_cast<size_t>(part.rows * part.columns));
    initial_values(initialisation, name, 0, part.rows, 0, part.columns, values.data());
  }
  return parameters;
}

LossAndGradients loss_and_gradients(const ModelConfig& model, const Parameters& parameters,
                                    const std::vector<TokenSample>& samples) {
  LossAndGradients result{0, parameters};
  for (auto& [name, values] : result.gradients) std::fill(values.begin(), values.end(), 0.0);
  double tokens = 0;
  for (const TokenSample& sample : samples) tokens += static_cast<double>(sample.tokens.size());
  for (const TokenSample& sample : samples) {
    SampleRun run(model, parameters, sample);
    result.loss += run.forward() / tokens;
    run.backward(1 / tokens, result.gradients);
  }
  return result;
}

const LossAndGradients& first_step(const ModelConfig& model, const Initialisation& initialisation,
                                   const std::vector<TokenSample>& samples) {
  using Key = std::tuple<ModelConfig, Initialisation, std::vector<TokenSample>>;
  thread_local std::optional<std::pair<Key, LossAndGradients>> kept;
  Key key(model, initialisation, samples);
  if (!kept || kept->first != key) {
    kept.reset();  // its memory first
    kept.emplace(std::move(key),
                 loss_and_gradients(model, initial_parameters(model, initialisation), samples));
  }
  return kept->second;
}

double gradient_error(const Parameters& ours, const Parameters& exact) {
  double largest = 0, worst = 0;
  for (const auto& [name, values] : exact) largest = std::max(largest, norm(values));
  for (const auto& [name, values] : exact) {
    const auto found = ours.find(name);
    if (found == ours.end() || found->second.size() != values.size()) return INFINITY;
    std::vector<double> difference = found->second;
    for (size_t i = 0; i < values.size(); ++i) difference[i] -= values[i];
    const double size = norm(difference);
    const double error = size == 0 ? 0 : size / std::max(norm(values), 1e-3 * largest);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  return worst;
}

}  // namespace stp::reference
