// The layers of the reference's transformers, as plain loops.
#pragma once

#include <cstdint>
#include <vector>

namespace stp::reference {

using Matrix = std::vector<double>;  // row-major; callers know the sizes

/// y[s, o] = Σ_i x[s, i] · w[o, i]
Matrix linear(const Matrix& x, const Matrix& w, int64_t in, int64_t out);
/// Adds ∂/∂w to dw and returns ∂/∂x.
Matrix linear_backward(const Matrix& dy, const Matrix& x, const Matrix& w, int64_t in, int64_t out,
                       Matrix& dw);

Matrix plus(Matrix a, const Matrix& b);
/// Adds `bias` to each row of x.
void add_bias(const Matrix& bias, Matrix& x);
/// Adds all rows of dx to dbias.
void add_bias_gradient(const Matrix& dx, Matrix& dbias);

/// Query head j reads key head j / (q / kv); each has `dim` elements. `causal`: a token sees no later token.
struct Heads {
  int q, kv, dim;
  bool causal;
};
/// Rotates the first `rotated` of `dim` elements of each of `heads` heads of all rows by ±row ·
/// theta^(−2i/rotated), in the plane of elements i and i + rotated/2.
void rotate(Matrix& x, int heads, int dim, int rotated, double theta, double sign);
/// softmax(q · kᵀ / √dim): heads × tokens × tokens.
Matrix attention_weights(const Heads& heads, const Matrix& q, const Matrix& k);
/// The weighted sums of values for each token's queries.
Matrix attend(const Heads& heads, const Matrix& weights, const Matrix& v);
struct AttentionGradients {
  Matrix q, k, v;
};
/// Gradients of q, k and v from `gradient`, the gradient of attend()'s result.
AttentionGradients attention_backward(const Heads& heads, const Matrix& weights, const Matrix& q,
                                      const Matrix& k, const Matrix& v, const Matrix& gradient);

}  // namespace stp::reference
