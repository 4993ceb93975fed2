#include "stp/reference/transformer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "stp/reference/layers.h"
#include "stp/reference/vision_encoder.h"

namespace stp::reference {
namespace {

Matrix rms_norm(const Matrix& x, const Matrix& gain, double epsilon) {
  const auto h = static_cast<int64_t>(gain.size());
  Matrix y(x.size());
  for (size_t row = 0; row < x.size(); row += h) {
    double mean = 0;
    for (int64_t i = 0; i < h; ++i) mean += x[row + i] * x[row + i] / static_cast<double>(h);
    const double root = std::sqrt(mean + epsilon);
    for (int64_t i = 0; i < h; ++i) y[row + i] = x[row + i] / root * gain[i];
  }
  return y;
}

Matrix rms_norm_backward(const Matrix& dy, const Matrix& x, const Matrix& gain, double epsilon,
                         Matrix& dgain) {
  const auto h = static_cast<int64_t>(gain.size());
  Matrix dx(x.size());
  for (size_t row = 0; row < x.size(); row += h) {
    double mean = 0;
    for (int64_t i = 0; i < h; ++i) mean += x[row + i] * x[row + i] / static_cast<double>(h);
    const double root = std::sqrt(mean + epsilon);
    // With u = x / root: du_i/dx_j = (δ_ij − x_i x_j / (h root²)) / root.
    double projected = 0;
    for (int64_t i = 0; i < h; ++i) {
      dgain[i] += dy[row + i] * x[row + i] / root;
      projected += dy[row + i] * gain[i] * x[row + i];
    }
    for (int64_t j = 0; j < h; ++j)
      dx[row + j] =
          (dy[row + j] * gain[j] - x[row + j] * projected / (static_cast<double>(h) * root * root)) / root;
  }
  return dx;
}

// The forward of one sample, with the tensors for its backward.
class SampleRun {
 public:
  SampleRun(const ModelConfig& model, const Parameters& parameters, const Sample& sample)
      : model_(model),
        parameters_(parameters),
        sample_(sample),
        seq_(static_cast<int>(sample.tokens.size())),
        h_(model.hidden),
        q_(int64_t{model.q_heads} * model.head_dim),
        kv_(int64_t{model.kv_heads} * model.head_dim),
        ffn_(model.ffn),
        heads_{model.q_heads, model.kv_heads, model.head_dim, true} {
    if (model.has_vision()) vision_.emplace(model, parameters, sample.patches);
  }

  // The summed cross-entropy of the sample.
  double forward() {
    Matrix x(seq_ * h_);
    const Matrix& table = parameters_.at("embedding.weight");
    for (int s = 0; s < seq_; ++s)
      for (int64_t i = 0; i < h_; ++i) x[s * h_ + i] = table[sample_.tokens[s] * h_ + i];
    if (vision_) {  // in place of the first tokens
      const Matrix image = vision_->forward();
      image_elements_ = std::ssize(image);
      std::ranges::copy(image, x.begin());
    }
    for (int layer = 0; layer < model_.layers; ++layer) {
      layers_.emplace_back();
      x = attn_forward(layer, x);
      x = mlp_forward(layer, x);
    }
    head_input_ = x;
    head_normed_ = rms_norm(x, parameters_.at("head.norm.gain"), model_.norm_epsilon);
    probabilities_ = linear(head_normed_, parameters_.at(head_name()), h_, model_.vocab);
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
    d = linear_backward(d, head_normed_, parameters_.at(head_name()), h_, model_.vocab,
                        gradients.at(head_name()));
    d = rms_norm_backward(d, head_input_, parameters_.at("head.norm.gain"), model_.norm_epsilon,
                          gradients.at("head.norm.gain"));
    for (int layer = model_.layers - 1; layer >= 0; --layer) {
      d = mlp_backward(layer, d, gradients);
      d = attn_backward(layer, d, gradients);
    }
    Matrix& table = gradients.at("embedding.weight");
    for (int64_t s = image_elements_ / h_; s < seq_; ++s)
      for (int64_t i = 0; i < h_; ++i) table[sample_.tokens[s] * h_ + i] += d[s * h_ + i];
    if (vision_) vision_->backward({d.begin(), d.begin() + image_elements_}, gradients);
  }

 private:
  struct Layer {
    Matrix attn_input, attn_normed, q, k, v, weights, attended;  // weights: heads × seq × seq
    Matrix mlp_input, mlp_normed, gate, up, activation;
  };

  static std::string name(int layer, const char* part) {
    return "layers." + std::to_string(layer) + "." + part;
  }
  [[nodiscard]] const Matrix& weight(int layer, const char* part) const {
    return parameters_.at(name(layer, part));
  }

  [[nodiscard]] const char* head_name() const { return model_.tied() ? "embedding.weight" : "head.weight"; }
  [[nodiscard]] bool has_biases() const { return model_.biases() == Biases::qkv; }

  Matrix attn_forward(int layer, const Matrix& x) {
    Layer& l = layers_[layer];
    l.attn_input = x;
    l.attn_normed = rms_norm(x, weight(layer, "attn.norm.gain"), model_.norm_epsilon);
    const auto project = [&](const char* w, const char* b, int64_t out) {
      Matrix y = linear(l.attn_normed, weight(layer, w), h_, out);
      if (has_biases()) add_bias(weight(layer, b), y);
      return y;
    };
    l.q = project("attn.q.weight", "attn.q.bias", q_);
    l.k = project("attn.k.weight", "attn.k.bias", kv_);
    l.v = project("attn.v.weight", "attn.v.bias", kv_);
    rotate(l.q, heads_.q, heads_.dim, model_.rope_theta, 1);
    rotate(l.k, heads_.kv, heads_.dim, model_.rope_theta, 1);
    l.weights = attention_weights(heads_, l.q, l.k);
    l.attended = attend(heads_, l.weights, l.v);
    return plus(linear(l.attended, weight(layer, "attn.projection.weight"), q_, h_), x);
  }

  Matrix attn_backward(int layer, const Matrix& dy, Parameters& gradients) {
    Layer& l = layers_[layer];
    const auto gradient = [&](const char* part) -> Matrix& { return gradients.at(name(layer, part)); };
    const Matrix da = linear_backward(dy, l.attended, weight(layer, "attn.projection.weight"), q_, h_,
                                      gradient("attn.projection.weight"));
    auto [dq, dk, dv] = attention_backward(heads_, l.weights, l.q, l.k, l.v, da);
    rotate(dq, heads_.q, heads_.dim, model_.rope_theta, -1);
    rotate(dk, heads_.kv, heads_.dim, model_.rope_theta, -1);
    const auto project_backward = [&](const Matrix& dout, const char* w, const char* b, int64_t out) {
      if (has_biases()) add_bias_gradient(dout, gradient(b));
      return linear_backward(dout, l.attn_normed, weight(layer, w), h_, out, gradient(w));
    };
    Matrix dnormed = project_backward(dq, "attn.q.weight", "attn.q.bias", q_);
    dnormed = plus(project_backward(dk, "attn.k.weight", "attn.k.bias", kv_), dnormed);
    dnormed = plus(project_backward(dv, "attn.v.weight", "attn.v.bias", kv_), dnormed);
    return plus(rms_norm_backward(dnormed, l.attn_input, weight(layer, "attn.norm.gain"), model_.norm_epsilon,
                                  gradient("attn.norm.gain")),
                dy);
  }

  Matrix mlp_forward(int layer, const Matrix& x) {
    Layer& l = layers_[layer];
    l.mlp_input = x;
    l.mlp_normed = rms_norm(x, weight(layer, "mlp.norm.gain"), model_.norm_epsilon);
    l.gate = linear(l.mlp_normed, weight(layer, "mlp.gate.weight"), h_, ffn_);
    l.up = linear(l.mlp_normed, weight(layer, "mlp.up.weight"), h_, ffn_);
    l.activation.resize(l.gate.size());
    for (size_t i = 0; i < l.gate.size(); ++i)
      l.activation[i] = l.gate[i] / (1 + std::exp(-l.gate[i])) * l.up[i];
    return plus(linear(l.activation, weight(layer, "mlp.down.weight"), ffn_, h_), x);
  }

  Matrix mlp_backward(int layer, const Matrix& dy, Parameters& gradients) {
    Layer& l = layers_[layer];
    const auto gradient = [&](const char* part) -> Matrix& { return gradients.at(name(layer, part)); };
    const Matrix da = linear_backward(dy, l.activation, weight(layer, "mlp.down.weight"), ffn_, h_,
                                      gradient("mlp.down.weight"));
    Matrix dgate(da.size()), dup(da.size());
    for (size_t i = 0; i < da.size(); ++i) {
      const double sigmoid = 1 / (1 + std::exp(-l.gate[i]));
      dup[i] = da[i] * l.gate[i] * sigmoid;
      dgate[i] = da[i] * l.up[i] * (sigmoid + l.gate[i] * sigmoid * (1 - sigmoid));
    }
    Matrix dnormed = linear_backward(dgate, l.mlp_normed, weight(layer, "mlp.gate.weight"), h_, ffn_,
                                     gradient("mlp.gate.weight"));
    dnormed = plus(linear_backward(dup, l.mlp_normed, weight(layer, "mlp.up.weight"), h_, ffn_,
                                   gradient("mlp.up.weight")),
                   dnormed);
    return plus(rms_norm_backward(dnormed, l.mlp_input, weight(layer, "mlp.norm.gain"), model_.norm_epsilon,
                                  gradient("mlp.norm.gain")),
                dy);
  }

  const ModelConfig& model_;
  const Parameters& parameters_;
  const Sample& sample_;
  const int seq_;
  const int64_t h_, q_, kv_, ffn_;
  const Heads heads_;
  std::optional<VisionEncoder> vision_;
  int64_t image_elements_ = 0;  // of the language model's input
  std::vector<Layer> layers_;
  Matrix head_input_, head_normed_, probabilities_;
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
                                    const std::vector<Sample>& samples) {
  LossAndGradients result{0, parameters};
  for (auto& [name, values] : result.gradients) std::fill(values.begin(), values.end(), 0.0);
  double tokens = 0;
  for (const Sample& sample : samples) tokens += static_cast<double>(sample.tokens.size());
  for (const Sample& sample : samples) {
    SampleRun run(model, parameters, sample);
    result.loss += run.forward() / tokens;
    run.backward(1 / tokens, result.gradients);
  }
  return result;
}

double gradient_error(const Parameters& ours, const Parameters& exact) {
  double largest = 0, worst = 0;
  for (const auto& [name, values] : exact) largest = std::max(largest, norm(values));
  for (const auto& [name, values] : exact) {
    const auto found = ours.find(name);
    if (found == ours.end() || found->second.size() != values.size()) return INFINITY;
    std::vector<double> difference = found->second;
    for (size_t i = 0; i < values.size(); ++i) difference[i] -= values[i];
    const double error = norm(difference) / std::max(norm(values), 1e-3 * largest);
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  return worst;
}

}  // namespace stp::reference
