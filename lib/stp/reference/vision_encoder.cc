#include "stp/reference/vision_encoder.h"

#include <cmath>
#include <numbers>

namespace stp::reference {
namespace {

// The part of a layer as parameter_name() has it.
std::string unit_name(int layer, const char* unit) {
  return "vision.layers." + std::to_string(layer) + "." + unit;
}
constexpr const char* kMerger = "vision.merger";

// Mean and standard deviation of `count` values.
struct Moments {
  double mean = 0, deviation = 0;

  Moments(const double* values, int64_t count, double epsilon) {
    for (int64_t i = 0; i < count; ++i) mean += values[i] / static_cast<double>(count);
    double variance = 0;
    for (int64_t i = 0; i < count; ++i)
      variance += (values[i] - mean) * (values[i] - mean) / static_cast<double>(count);
    deviation = std::sqrt(variance + epsilon);
  }
};

double gelu(double x) { return x / 2 * (1 + std::erf(x / std::numbers::sqrt2)); }
double gelu_derivative(double x) {
  const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
  return (1 + std::erf(x / std::numbers::sqrt2)) / 2 + x * density;
}

}  // namespace

VisionEncoder::VisionEncoder(const ModelConfig& model, const Parameters& parameters,
                             const std::vector<float>& patches)
    : parameters_(parameters),
      encoder_(model.encoder()),
      patches_(patches.begin(), patches.end()),
      d_(encoder_.hidden),
      heads_{encoder_.q_heads, encoder_.kv_heads, encoder_.head_dim, false} {}

Matrix VisionEncoder::forward() {
  attentions_.resize(encoder_.layers);
  mlps_.resize(encoder_.layers + 1);
  Matrix x = linear(patches_, weight("vision.patches.weight"), kPatchElements, d_);
  for (int layer = 0; layer < encoder_.layers; ++layer) {
    x = plus(attention_forward(unit_name(layer, "attn"), attentions_[layer], x), x);
    x = plus(mlp_forward(unit_name(layer, "mlp"), mlps_[layer], x), x);
  }
  return mlp_forward(kMerger, mlps_.back(), x);
}

void VisionEncoder::backward(const Matrix& gradient, Parameters& gradients) {
  Matrix d = mlp_backward(kMerger, mlps_.back(), gradient, gradients);
  for (int layer = encoder_.layers - 1; layer >= 0; --layer) {
    d = plus(mlp_backward(unit_name(layer, "mlp"), mlps_[layer], d, gradients), d);
    d = plus(attention_backward(unit_name(layer, "attn"), attentions_[layer], d, gradients), d);
  }
  linear_backward(d, patches_, weight("vision.patches.weight"), kPatchElements, d_,
                  gradients.at("vision.patches.weight"));
}

Matrix VisionEncoder::norm_forward(const std::string& unit, Norm& norm, const Matrix& x) {
  const Matrix &gain = weight(unit + ".norm.gain"), &bias = weight(unit + ".norm.bias");
  norm.input = norm.output = x;
  for (size_t row = 0; row < x.size(); row += d_) {
    const Moments of(&x[row], d_, encoder_.norm_epsilon);
    for (int64_t i = 0; i < d_; ++i)
      norm.output[row + i] = (x[row + i] - of.mean) / of.deviation * gain[i] + bias[i];
  }
  return norm.output;
}

Matrix VisionEncoder::norm_backward(const std::string& unit, const Norm& norm, const Matrix& dy,
                                    Parameters& gradients) {
  const Matrix &gain = weight(unit + ".norm.gain"), &x = norm.input;
  Matrix& dgain = gradients.at(unit + ".norm.gain");
  add_bias_gradient(dy, gradients.at(unit + ".norm.bias"));
  Matrix dx(x.size());
  for (size_t row = 0; row < x.size(); row += d_) {
    const Moments of(&x[row], d_, encoder_.norm_epsilon);
    const auto u = [&](int64_t i) { return (x[row + i] - of.mean) / of.deviation; };
    for (int64_t i = 0; i < d_; ++i) dgain[i] += dy[row + i] * u(i);
    // du_i/dx_j = (δ_ij − 1/d − u_i u_j / d) / deviation.
    for (int64_t j = 0; j < d_; ++j)
      for (int64_t i = 0; i < d_; ++i)
        dx[row + j] += dy[row + i] * gain[i] *
                       ((i == j ? 1 : 0) - (1 + u(i) * u(j)) / static_cast<double>(d_)) / of.deviation;
  }
  return dx;
}

Matrix VisionEncoder::attention_forward(const std::string& unit, Attention& of, const Matrix& x) {
  const Matrix normed = norm_forward(unit, of.norm, x);
  const auto project = [&](const std::string& name, const Matrix& in) {
    Matrix y = linear(in, weight(unit + name + ".weight"), d_, d_);
    add_bias(weight(unit + name + ".bias"), y);
    return y;
  };
  of.q = project(".q", normed);
  of.k = project(".k", normed);
  of.v = project(".v", normed);
  for (Matrix* rotated : {&of.q, &of.k}) rotate(*rotated, heads_.q, heads_.dim, encoder_.rope_theta, 1);
  of.weights = attention_weights(heads_, of.q, of.k);
  of.attended = attend(heads_, of.weights, of.v);
  return project(".projection", of.attended);
}

Matrix VisionEncoder::attention_backward(const std::string& unit, const Attention& of, const Matrix& dy,
                                         Parameters& gradients) {
  const auto project_backward = [&](const std::string& name, const Matrix& dout, const Matrix& in) {
    add_bias_gradient(dout, gradients.at(unit + name + ".bias"));
    return linear_backward(dout, in, weight(unit + name + ".weight"), d_, d_,
                           gradients.at(unit + name + ".weight"));
  };
  const Matrix da = project_backward(".projection", dy, of.attended);
  auto [dq, dk, dv] = reference::attention_backward(heads_, of.weights, of.q, of.k, of.v, da);
  for (Matrix* rotated : {&dq, &dk}) rotate(*rotated, heads_.q, heads_.dim, encoder_.rope_theta, -1);
  Matrix dnormed = project_backward(".q", dq, of.norm.output);
  dnormed = plus(project_backward(".k", dk, of.norm.output), dnormed);
  dnormed = plus(project_backward(".v", dv, of.norm.output), dnormed);
  return norm_backward(unit, of.norm, dnormed, gradients);
}

// The sizes of its linear layers follow from their biases: the merger's take several rows as one.
Matrix VisionEncoder::mlp_forward(const std::string& unit, Mlp& of, const Matrix& x) {
  const Matrix &bias1 = weight(unit + ".fc1.bias"), &bias2 = weight(unit + ".fc2.bias");
  const auto inner = std::ssize(bias1), out = std::ssize(bias2),
             in = std::ssize(weight(unit + ".fc1.weight")) / inner;
  of.inner = linear(norm_forward(unit, of.norm, x), weight(unit + ".fc1.weight"), in, inner);
  add_bias(bias1, of.inner);
  of.activation = of.inner;
  for (double& value : of.activation) value = gelu(value);
  Matrix y = linear(of.activation, weight(unit + ".fc2.weight"), inner, out);
  add_bias(bias2, y);
  return y;
}

Matrix VisionEncoder::mlp_backward(const std::string& unit, const Mlp& of, const Matrix& dy,
                                   Parameters& gradients) {
  Matrix &dbias1 = gradients.at(unit + ".fc1.bias"), &dbias2 = gradients.at(unit + ".fc2.bias");
  const auto inner = std::ssize(dbias1), out = std::ssize(dbias2),
             in = std::ssize(weight(unit + ".fc1.weight")) / inner;
  add_bias_gradient(dy, dbias2);
  Matrix d = linear_backward(dy, of.activation, weight(unit + ".fc2.weight"), inner, out,
                             gradients.at(unit + ".fc2.weight"));
  for (size_t i = 0; i < d.size(); ++i) d[i] *= gelu_derivative(of.inner[i]);
  add_bias_gradient(d, dbias1);
  d = linear_backward(d, of.norm.output, weight(unit + ".fc1.weight"), in, inner,
                      gradients.at(unit + ".fc1.weight"));
  return norm_backward(unit, of.norm, d, gradients);
}

}  // namespace stp::reference
