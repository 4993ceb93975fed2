#include "stp/reference/layers.h"

#include <algorithm>
#include <cmath>

namespace stp::reference {

Matrix linear(const Matrix& x, const Matrix& w, int64_t in, int64_t out) {
  const int64_t rows = static_cast<int64_t>(x.size()) / in;
  Matrix y(rows * out);
  for (int64_t s = 0; s < rows; ++s)
    for (int64_t o = 0; o < out; ++o) {
      double sum = 0;
      for (int64_t i = 0; i < in; ++i) sum += x[s * in + i] * w[o * in + i];
      y[s * out + o] = sum;
    }
  return y;
}

Matrix linear_backward(const Matrix& dy, const Matrix& x, const Matrix& w, int64_t in, int64_t out,
                       Matrix& dw) {
  const int64_t rows = static_cast<int64_t>(x.size()) / in;
  Matrix dx(x.size());
  for (int64_t s = 0; s < rows; ++s)
    for (int64_t o = 0; o < out; ++o) {
      const double g = dy[s * out + o];
      for (int64_t i = 0; i < in; ++i) {
        dx[s * in + i] += g * w[o * in + i];
        dw[o * in + i] += g * x[s * in + i];
      }
    }
  return dx;
}

Matrix plus(Matrix a, const Matrix& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

void add_bias(const Matrix& bias, Matrix& x) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += bias[i % bias.size()];
}

void add_bias_gradient(const Matrix& dx, Matrix& dbias) {
  for (size_t i = 0; i < dx.size(); ++i) dbias[i % dbias.size()] += dx[i];
}

void rotate(Matrix& x, int heads, int dim, int rotated, double theta, double sign) {
  const int64_t rows = static_cast<int64_t>(x.size()) / (int64_t{heads} * dim);
  double* at = x.data();
  for (int64_t position = 0; position < rows; ++position)
    for (int head = 0; head < heads; ++head, at += dim)
      for (int i = 0; i < rotated / 2; ++i) {
        const double angle = sign * static_cast<double>(position) * std::pow(theta, -2.0 * i / rotated);
        const double a = at[i], b = at[i + rotated / 2];
        at[i] = a * std::cos(angle) - b * std::sin(angle);
        at[i + rotated / 2] = a * std::sin(angle) + b * std::cos(angle);
      }
}

namespace {

// Calls visit(row of weights, number of visible tokens, the query's place in q, its head's keys' place in a
// row of k) for each query.
template <typename Weights, typename Visit>
void for_each_query(const Heads& heads, Weights& weights, int64_t tokens, Visit visit) {
  for (int head = 0; head < heads.q; ++head)
    for (int64_t s = 0; s < tokens; ++s)
      visit(weights.data() + (head * tokens + s) * tokens, heads.causal ? s + 1 : tokens,
            (s * heads.q + head) * heads.dim, int64_t{head / (heads.q / heads.kv)} * heads.dim);
}

int64_t tokens_of(const Heads& heads, const Matrix& keys) {
  return static_cast<int64_t>(keys.size()) / (int64_t{heads.kv} * heads.dim);
}

}  // namespace

Matrix attention_weights(const Heads& heads, const Matrix& q, const Matrix& k) {
  const int64_t tokens = tokens_of(heads, k), stride = int64_t{heads.kv} * heads.dim;
  Matrix weights(heads.q * tokens * tokens);
  for_each_query(heads, weights, tokens, [&](double* row, int64_t seen, int64_t query, int64_t from) {
    for (int64_t t = 0; t < seen; ++t) {
      for (int i = 0; i < heads.dim; ++i) row[t] += q[query + i] * k[t * stride + from + i];
      row[t] /= std::sqrt(static_cast<double>(heads.dim));
    }
    const double largest = *std::max_element(row, row + seen);
    double sum = 0;
    for (int64_t t = 0; t < seen; ++t) sum += row[t] = std::exp(row[t] - largest);
    for (int64_t t = 0; t < seen; ++t) row[t] /= sum;
  });
  return weights;
}

Matrix attend(const Heads& heads, const Matrix& weights, const Matrix& v) {
  const int64_t tokens = tokens_of(heads, v), stride = int64_t{heads.kv} * heads.dim;
  Matrix attended(tokens * heads.q * heads.dim);
  for_each_query(heads, weights, tokens, [&](const double* row, int64_t seen, int64_t query, int64_t from) {
    for (int64_t t = 0; t < seen; ++t)
      for (int i = 0; i < heads.dim; ++i) attended[query + i] += row[t] * v[t * stride + from + i];
  });
  return attended;
}

AttentionGradients attention_backward(const Heads& heads, const Matrix& weights, const Matrix& q,
                                      const Matrix& k, const Matrix& v, const Matrix& gradient) {
  const int64_t tokens = tokens_of(heads, k), stride = int64_t{heads.kv} * heads.dim;
  AttentionGradients d{Matrix(q.size()), Matrix(k.size()), Matrix(v.size())};
  for_each_query(heads, weights, tokens, [&](const double* row, int64_t seen, int64_t query, int64_t from) {
    Matrix dw(seen);
    double mean = 0;
    for (int64_t t = 0; t < seen; ++t) {
      for (int i = 0; i < heads.dim; ++i) {
        dw[t] += gradient[query + i] * v[t * stride + from + i];
        d.v[t * stride + from + i] += row[t] * gradient[query + i];
      }
      mean += dw[t] * row[t];
    }
    for (int64_t t = 0; t < seen; ++t) {
      const double dscore = row[t] * (dw[t] - mean) / std::sqrt(static_cast<double>(heads.dim));
      for (int i = 0; i < heads.dim; ++i) {
        d.q[query + i] += dscore * k[t * stride + from + i];
        d.k[t * stride + from + i] += dscore * q[query + i];
      }
    }
  });
  return d;
}

}  // namespace stp::reference
