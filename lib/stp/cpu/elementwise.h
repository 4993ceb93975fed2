// Everything that is not a GEMM, on raw pointers: rows of `columns` elements, one after the other. T is float
// or double, and bf16 tensors are float here (operand.h); sums use double.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "stp/cpu/exponential.h"
#include "stp/device/bfloat16.h"
#include "stp/device/kernels.h"

namespace stp::cpu {

/// Σ value(i) in double, in four chains, so that additions need not wait for each other.
template <typename Value>
double sum_of(int64_t count, Value value) {
  std::array<double, 4> sums{};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4)
    for (int64_t j = 0; j < 4; ++j) sums[j] += static_cast<double>(value(i + j));
  for (; i < count; ++i) sums[0] += static_cast<double>(value(i));
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// The largest of `count` ≥ 1 values, in eight chains, so that it vectorises (std::max, which takes
/// addresses, would not).
template <typename T>
T largest_of(int64_t count, const T* values) {
  std::array<T, 8> largest;
  largest.fill(values[0]);
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (int64_t j = 0; j < 8; ++j) largest[j] = values[i + j] > largest[j] ? values[i + j] : largest[j];
  for (; i < count; ++i) largest[0] = std::max(largest[0], values[i]);
  return *std::max_element(largest.begin(), largest.end());
}

template <typename T>
double sum_of_squares(int64_t count, const T* values) {
  return sum_of(count, [&](int64_t i) {
    const auto value = static_cast<double>(values[i]);
    return value * value;
  });
}

template <typename T>
void scale(int64_t count, double factor, const T* in, T* out) {
  const T f = static_cast<T>(factor);
  for (int64_t i = 0; i < count; ++i) out[i] = f * in[i];
}

template <typename T>
void add(int64_t count, const T* in, T* out) {
  for (int64_t i = 0; i < count; ++i) out[i] += in[i];
}

template <typename T>
void add_column_sums(int64_t rows, int64_t columns, const T* x, T* sums) {
  for (int64_t row = 0; row < rows; ++row, x += columns)
    for (int64_t i = 0; i < columns; ++i) sums[i] += x[i];
}

template <typename T>
void rms_norm_forward(int64_t rows, int64_t columns, const T* x, const T* gain, double epsilon, T* y,
                      T* rstd) {
  for (int64_t row = 0; row < rows; ++row, x += columns, y += columns) {
    const double mean = sum_of_squares(columns, x) / static_cast<double>(columns);
    const T r = static_cast<T>(1 / std::sqrt(mean + epsilon));
    rstd[row] = r;
    for (int64_t i = 0; i < columns; ++i) y[i] = x[i] * r * gain[i];
  }
}

/// dx may be dy; `residual` may be null.
template <typename T>
void rms_norm_backward(int64_t rows, int64_t columns, const T* dy, const T* x, const T* gain, const T* rstd,
                       double residual_factor, const T* residual, T* dx, T* gain_gradient) {
  const T factor = static_cast<T>(residual_factor);
  for (int64_t row = 0; row < rows; ++row, dy += columns, x += columns, dx += columns) {
    const T r = rstd[row];
    const double along = sum_of(columns, [&](int64_t i) {
      return static_cast<double>(dy[i]) * static_cast<double>(gain[i]) * static_cast<double>(x[i]);
    });
    // y = x·r·gain, ∂r/∂x = −r³·x / columns
    const T pull = static_cast<T>(along * static_cast<double>(r) * static_cast<double>(r) *
                                  static_cast<double>(r) / static_cast<double>(columns));
    for (int64_t i = 0; i < columns; ++i) gain_gradient[i] += dy[i] * x[i] * r;
    if (residual == nullptr) {
      for (int64_t i = 0; i < columns; ++i) dx[i] = dy[i] * gain[i] * r - x[i] * pull;
    } else {
      const T* add = residual + row * columns;
      for (int64_t i = 0; i < columns; ++i) dx[i] = dy[i] * gain[i] * r - x[i] * pull + factor * add[i];
    }
  }
}

template <typename T>
void layer_norm_forward(int64_t rows, int64_t columns, const T* x, const T* gain, const T* bias,
                        double epsilon, T* y, T* statistics) {
  for (int64_t row = 0; row < rows; ++row, x += columns, y += columns, statistics += 2) {
    const double mean = sum_of(columns, [&](int64_t i) { return x[i]; }) / static_cast<double>(columns);
    const double variance = sum_of(columns,
                                   [&](int64_t i) {
                                     const double from_mean = static_cast<double>(x[i]) - mean;
                                     return from_mean * from_mean;
                                   }) /
                            static_cast<double>(columns);
    const T m = statistics[0] = static_cast<T>(mean);
    const T r = statistics[1] = static_cast<T>(1 / std::sqrt(variance + epsilon));
    for (int64_t i = 0; i < columns; ++i) y[i] = (x[i] - m) * r * gain[i] + bias[i];
  }
}

/// dx may be dy; `residual` may be null.
template <typename T>
void layer_norm_backward(int64_t rows, int64_t columns, const T* dy, const T* x, const T* gain,
                         const T* statistics, double residual_factor, const T* residual, T* dx,
                         T* gain_gradient, T* bias_gradient) {
  const T factor = static_cast<T>(residual_factor);
  for (int64_t row = 0; row < rows; ++row, dy += columns, x += columns, dx += columns, statistics += 2) {
    const T m = statistics[0], r = statistics[1];
    // With n = (x − mean)·r and g = dy·gain: dx = r·(g − mean(g) − n·mean(g·n)).
    const double mean = sum_of(columns, [&](int64_t i) { return dy[i] * gain[i]; });
    const double along = sum_of(columns, [&](int64_t i) { return dy[i] * gain[i] * (x[i] - m) * r; });
    const T shift = static_cast<T>(mean / static_cast<double>(columns));
    const T pull = static_cast<T>(along / static_cast<double>(columns));
    for (int64_t i = 0; i < columns; ++i) {
      const T normed = (x[i] - m) * r, g = dy[i];
      gain_gradient[i] += g * normed;
      bias_gradient[i] += g;
      dx[i] = r * (g * gain[i] - shift - normed * pull);
    }
    if (residual == nullptr) continue;
    for (int64_t i = 0; i < columns; ++i) dx[i] += factor * residual[row * columns + i];
  }
}

template <typename T>
void add_bias(int64_t rows, int64_t columns, double factor, const T* bias, T* x) {
  const T f = static_cast<T>(factor);
  for (int64_t row = 0; row < rows; ++row, x += columns)
    for (int64_t i = 0; i < columns; ++i) x[i] += f * bias[i];
}

/// The normal distribution.
template <typename T>
T normal_distribution(T x) {
  return (T{1} + std::erf(x * static_cast<T>(std::numbers::sqrt2 / 2))) / T{2};
}

template <typename T>
void gelu_forward(int64_t count, const T* x, T* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = x[i] * normal_distribution(x[i]);
}

template <typename T>
void gelu_backward(int64_t count, const T* x, const T* gradient, T* x_gradient) {
  constexpr T kDensityAtZero = static_cast<T>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
  for (int64_t i = 0; i < count; ++i) {
    const T density = kDensityAtZero * exponential(-x[i] * x[i] / T{2});
    x_gradient[i] = gradient[i] * (normal_distribution(x[i]) + x[i] * density);
  }
}

/// Rotates the heads of one row by `direction` (1 or −1) times the angles whose cosines and sines are given.
template <typename T>
void rotate(T* head, int64_t heads, int64_t half, const T* cosine, const T* sine, T direction) {
  for (int64_t h = 0; h < heads; ++h, head += 2 * half) {
    for (int64_t i = 0; i < half; ++i) {
      const T a = head[i], b = head[i + half], s = direction * sine[i];
      head[i] = a * cosine[i] - b * s;
      head[i + half] = b * cosine[i] + a * s;
    }
  }
}

template <typename T>
void swiglu_forward(int64_t rows, int64_t columns, const T* gate_up, T* out) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * columns, out += columns) {
    const T* up = gate_up + columns;
    for (int64_t i = 0; i < columns; ++i) out[i] = gate_up[i] / (T{1} + exponential(-gate_up[i])) * up[i];
  }
}

template <typename T>
void swiglu_backward(int64_t rows, int64_t columns, const T* gate_up, const T* gradient,
                     T* gate_up_gradient) {
  for (int64_t row = 0; row < rows; ++row) {
    const T *gate = gate_up + 2 * row * columns, *up = gate + columns, *g = gradient + row * columns;
    T *gate_gradient = gate_up_gradient + 2 * row * columns, *up_gradient = gate_gradient + columns;
    for (int64_t i = 0; i < columns; ++i) {
      const T sigmoid = T{1} / (T{1} + exponential(-gate[i]));
      const T silu = gate[i] * sigmoid;
      up_gradient[i] = g[i] * silu;
      gate_gradient[i] = g[i] * up[i] * (sigmoid + silu * (T{1} - sigmoid));
    }
  }
}

/// The table holds the rows [first, first + entries).
template <typename T>
void embedding_forward(int64_t rows, int64_t columns, const int32_t* tokens, const T* table, int64_t first,
                       int64_t entries, T* out) {
  for (int64_t row = 0; row < rows; ++row, out += columns) {
    const int64_t entry = tokens[row] - first;
    if (entry >= 0 && entry < entries)
      std::copy_n(table + entry * columns, columns, out);
    else
      std::fill_n(out, columns, T{0});
  }
}

template <typename T>
void embedding_backward(int64_t rows, int64_t columns, const int32_t* tokens, const T* gradient,
                        int64_t first, int64_t entries, T* table_gradient) {
  for (int64_t row = 0; row < rows; ++row, gradient += columns) {
    const int64_t entry = tokens[row] - first;
    if (entry < 0 || entry >= entries) continue;
    T* to = table_gradient + entry * columns;
    for (int64_t i = 0; i < columns; ++i) to[i] += gradient[i];
  }
}

template <typename T>
void row_maximum(int64_t rows, int64_t columns, const T* logits, T* maximum) {
  for (int64_t row = 0; row < rows; ++row) maximum[row] = largest_of(columns, logits + row * columns);
}

template <typename T>
void exponential_sums(int64_t rows, int64_t columns, const T* logits, const T* maximum,
                      const int32_t* targets, int64_t first, T* sums) {
  for (int64_t row = 0; row < rows; ++row, logits += columns) {
    const T shift = maximum[row];
    // Exponentials first, then their sum: a loop of floats and doubles is not vectorised.
    std::array<T, 256> part;
    double total = 0;
    for (int64_t begin = 0; begin < columns; begin += std::ssize(part)) {
      const int64_t count = std::min<int64_t>(std::ssize(part), columns - begin);
      for (int64_t i = 0; i < count; ++i) part[i] = exponential(logits[begin + i] - shift);
      total += sum_of(count, [&](int64_t i) { return part[i]; });
    }
    sums[2 * row] = static_cast<T>(total);
    const int64_t target = targets[row] - first;
    sums[2 * row + 1] = target >= 0 && target < columns ? logits[target] : T{0};
  }
}

template <typename T>
void cross_entropy(int64_t rows, int64_t columns, const T* maximum, const T* sums, const int32_t* targets,
                   int64_t first, double factor, T* logits, T* loss) {
  double total = 0;
  for (int64_t row = 0; row < rows; ++row, logits += columns) {
    const T shift = maximum[row];
    total += std::log(static_cast<double>(sums[2 * row])) + static_cast<double>(shift) -
             static_cast<double>(sums[2 * row + 1]);
    const T share = static_cast<T>(factor / static_cast<double>(sums[2 * row]));
    for (int64_t i = 0; i < columns; ++i) logits[i] = exponential(logits[i] - shift) * share;
    const int64_t target = targets[row] - first;
    if (target >= 0 && target < columns) logits[target] -= static_cast<T>(factor);
  }
  *loss += static_cast<T>(factor * total);
}

template <typename T>
void adamw(int64_t count, const AdamW& options, double scale, const T* gradient, T* first, T* second,
           T* master) {
  const T beta1 = static_cast<T>(options.beta1), beta2 = static_cast<T>(options.beta2);
  const T rest1 = static_cast<T>(1 - options.beta1), rest2 = static_cast<T>(1 - options.beta2);
  const T unbias1 = static_cast<T>(1 / (1 - std::pow(options.beta1, options.step)));
  const T unbias2 = static_cast<T>(1 / (1 - std::pow(options.beta2, options.step)));
  const T rate = static_cast<T>(options.learning_rate), epsilon = static_cast<T>(options.epsilon);
  const T keep = static_cast<T>(1 - options.learning_rate * options.weight_decay);
  const T factor = static_cast<T>(scale);
  for (int64_t i = 0; i < count; ++i) {
    const T g = gradient[i] * factor;
    first[i] = beta1 * first[i] + rest1 * g;
    second[i] = beta2 * second[i] + rest2 * g * g;
    master[i] = master[i] * keep - rate * (first[i] * unbias1) / (std::sqrt(second[i] * unbias2) + epsilon);
  }
}

template <typename T>
void round(int64_t count, const T* from, Bfloat16* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = Bfloat16(static_cast<float>(from[i]));
}

}  // namespace stp::cpu
