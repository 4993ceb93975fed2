#include "stp/reference/units.h"

#include <cmath>
#include <numbers>
#include <tuple>

namespace stp::reference {
namespace {

// Whether means are subtracted, and a norm's width, are its own: norms of q and k are RMSNorms of heads.
Matrix normalised(const Matrix& x, const Matrix& gain, bool centred, double epsilon) {
  const auto d = static_cast<int64_t>(gain.size());
  Matrix u(x.size());
  for (size_t row = 0; row < x.size(); row += d) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; centred && i < d; ++i) mean += x[row + i] / static_cast<double>(d);
    for (int64_t i = 0; i < d; ++i) variance += std::pow(x[row + i] - mean, 2) / static_cast<double>(d);
    for (int64_t i = 0; i < d; ++i) u[row + i] = (x[row + i] - mean) / std::sqrt(variance + epsilon);
  }
  return u;
}

Matrix scaled(Matrix u, const Matrix& gain) {
  for (size_t i = 0; i < u.size(); ++i) u[i] *= gain[i % gain.size()];
  return u;
}

// With u = (x − mean) / deviation: du_i/dx_j = (δ_ij − u_i u_j / d − [centred] / d) / deviation.
Matrix scaled_backward(const Matrix& dy, const Matrix& x, const Matrix& gain, bool centred, double epsilon,
                       Matrix& dgain) {
  const auto d = static_cast<int64_t>(gain.size());
  const Matrix u = normalised(x, gain, centred, epsilon);
  Matrix dx(x.size());
  for (size_t row = 0; row < x.size(); row += d) {
    double mean = 0, variance = 0, along = 0, sum = 0;
    for (int64_t i = 0; centred && i < d; ++i) mean += x[row + i] / static_cast<double>(d);
    for (int64_t i = 0; i < d; ++i) {
      variance += std::pow(x[row + i] - mean, 2) / static_cast<double>(d);
      dgain[i] += dy[row + i] * u[row + i];
      along += dy[row + i] * gain[i] * u[row + i] / static_cast<double>(d);
      if (centred) sum += dy[row + i] * gain[i] / static_cast<double>(d);
    }
    for (int64_t j = 0; j < d; ++j)
      dx[row + j] = (dy[row + j] * gain[j] - u[row + j] * along - sum) / std::sqrt(variance + epsilon);
  }
  return dx;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// tanh's argument in GELU's approximation (Hendrycks and Gimpel, arXiv 1606.08415), and its derivative.
double inner_of_tanh(double x) { return std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x); }
double inner_derivative(double x) { return std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x); }

}  // namespace

Units::Units(const ModelConfig& model, const Parameters& parameters)
    : model_(model),
      parameters_(parameters),
      heads_{model.q_heads, model.kv_heads, model.head_dim, model.causal()},
      q_(int64_t{heads_.q} * heads_.dim),
      kv_(int64_t{heads_.kv} * heads_.dim) {}

Matrix Units::norm_forward(const std::string& unit, Norm& of, const Matrix& x) const {
  const Matrix& gain = weight(unit + ".norm.gain");
  of.input = x;
  of.output = scaled(normalised(x, gain, model_.norm() != stp::Norm::rms, model_.norm_epsilon), gain);
  if (model_.norm() == stp::Norm::layer) add_bias(weight(unit + ".norm.bias"), of.output);
  return of.output;
}

Matrix Units::norm_backward(const std::string& unit, const Norm& of, const Matrix& dy,
                            Parameters& gradients) const {
  if (model_.norm() == stp::Norm::layer) add_bias_gradient(dy, gradients.at(unit + ".norm.bias"));
  return scaled_backward(dy, of.input, weight(unit + ".norm.gain"), model_.norm() != stp::Norm::rms,
                         model_.norm_epsilon, gradients.at(unit + ".norm.gain"));
}

int64_t Units::outputs(const std::string& name, int64_t otherwise) const {
  const auto bias = parameters_.find(name + ".bias");
  return bias == parameters_.end() ? otherwise : std::ssize(bias->second);
}

Matrix Units::project(const std::string& name, const Matrix& x, int64_t otherwise) const {
  const int64_t out = outputs(name, otherwise);
  const Matrix& w = weight(name + ".weight");
  Matrix y = linear(x, w, std::ssize(w) / out, out);
  if (const auto bias = parameters_.find(name + ".bias"); bias != parameters_.end())
    add_bias(bias->second, y);
  return y;
}

Matrix Units::project_backward(const std::string& name, const Matrix& dy, const Matrix& x, int64_t otherwise,
                               Parameters& gradients) const {
  const int64_t out = outputs(name, otherwise);
  const Matrix& w = weight(name + ".weight");
  if (const auto bias = gradients.find(name + ".bias"); bias != gradients.end())
    add_bias_gradient(dy, bias->second);
  return linear_backward(dy, x, w, std::ssize(w) / out, out, gradients.at(name + ".weight"));
}

Matrix Units::attention_forward(const std::string& unit, Attention& of, const Matrix& x) const {
  const Matrix normed = norm_forward(unit, of.norm, x);
  of.q = project(unit + ".q", normed, q_);
  of.k = project(unit + ".k", normed, kv_);
  of.v = project(unit + ".v", normed, kv_);
  if (model_.variant.query_key_norm)
    for (const auto& [norm, values, name] :
         {std::tuple(&of.q_norm, &of.q, ".q_norm"), {&of.k_norm, &of.k, ".k_norm"}}) {
      const Matrix& gain = weight(unit + name + ".gain");
      norm->input = *values;
      *values = scaled(normalised(*values, gain, false, model_.norm_epsilon), gain);
    }
  if (model_.rotary()) {
    rotate(of.q, heads_.q, heads_.dim, model_.rotary_dim(), model_.rope_theta, 1);
    rotate(of.k, heads_.kv, heads_.dim, model_.rotary_dim(), model_.rope_theta, 1);
  }
  of.weights = attention_weights(heads_, of.q, of.k);
  of.attended = attend(heads_, of.weights, of.v);
  return project(unit + ".projection", of.attended, model_.hidden);
}

Matrix Units::attention_backward(const std::string& unit, const Attention& of, const Matrix& dy,
                                 Parameters& gradients) const {
  const Matrix da = project_backward(unit + ".projection", dy, of.attended, model_.hidden, gradients);
  auto [dq, dk, dv] = reference::attention_backward(heads_, of.weights, of.q, of.k, of.v, da);
  if (model_.rotary()) {
    rotate(dq, heads_.q, heads_.dim, model_.rotary_dim(), model_.rope_theta, -1);
    rotate(dk, heads_.kv, heads_.dim, model_.rotary_dim(), model_.rope_theta, -1);
  }
  if (model_.variant.query_key_norm)
    for (const auto& [norm, d, name] : {std::tuple(&of.q_norm, &dq, ".q_norm"), {&of.k_norm, &dk, ".k_norm"}})
      *d = scaled_backward(*d, norm->input, weight(unit + name + ".gain"), false, model_.norm_epsilon,
                           gradients.at(unit + name + ".gain"));
  Matrix dnormed = project_backward(unit + ".q", dq, of.norm.output, q_, gradients);
  dnormed = plus(project_backward(unit + ".k", dk, of.norm.output, kv_, gradients), dnormed);
  dnormed = plus(project_backward(unit + ".v", dv, of.norm.output, kv_, gradients), dnormed);
  return norm_backward(unit, of.norm, dnormed, gradients);
}

double Units::activate(double x) const {
  switch (model_.activation()) {
    case Activation::swiglu:  // of the gate
      return x * sigmoid(x);
    case Activation::gelu:
      return x / 2 * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::gelu_tanh:
      return x / 2 * (1 + std::tanh(inner_of_tanh(x)));
    case Activation::squared_relu:
      return x > 0 ? x * x : 0;
  }
  return NAN;
}

double Units::derivative(double x) const {
  switch (model_.activation()) {
    case Activation::swiglu:
      return sigmoid(x) + x * sigmoid(x) * (1 - sigmoid(x));
    case Activation::gelu:
      return (1 + std::erf(x / std::numbers::sqrt2)) / 2 +
             x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    case Activation::gelu_tanh: {
      const double t = std::tanh(inner_of_tanh(x));
      return (1 + t) / 2 + x / 2 * (1 - t * t) * inner_derivative(x);
    }
    case Activation::squared_relu:
      return x > 0 ? 2 * x : 0;
  }
  return NAN;
}

Matrix Units::mlp_forward(const std::string& unit, Mlp& of, const Matrix& x) const {
  const Matrix normed = norm_forward(unit, of.norm, x);
  of.inner = project(unit + (model_.gated() ? ".gate" : ".fc1"), normed, model_.ffn);
  of.activation = of.inner;
  for (double& value : of.activation) value = activate(value);
  if (!model_.gated()) return project(unit + ".fc2", of.activation, model_.hidden);
  of.up = project(unit + ".up", normed, model_.ffn);
  for (size_t i = 0; i < of.up.size(); ++i) of.activation[i] *= of.up[i];
  return project(unit + ".down", of.activation, model_.hidden);
}

Matrix Units::mlp_backward(const std::string& unit, const Mlp& of, const Matrix& dy,
                           Parameters& gradients) const {
  const bool gated = model_.gated();
  Matrix d = project_backward(unit + (gated ? ".down" : ".fc2"), dy, of.activation, model_.hidden, gradients);
  Matrix dup = d;
  for (size_t i = 0; i < d.size(); ++i) {
    dup[i] *= activate(of.inner[i]);
    d[i] *= derivative(of.inner[i]) * (gated ? of.up[i] : 1);
  }
  d = project_backward(unit + (gated ? ".gate" : ".fc1"), d, of.norm.output, model_.ffn, gradients);
  if (gated) d = plus(project_backward(unit + ".up", dup, of.norm.output, model_.ffn, gradients), d);
  return norm_backward(unit, of.norm, d, gradients);
}

}  // namespace stp::reference
