// Every kernel except GEMM and attention. T is float or double; bf16 tensors are float here (operand.h). Sums
// of a row, of losses and of squares use double; sums over rows, which are gradients, T.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <mutex>
#include <numbers>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "stp/cpu/exponential.h"
#include "stp/cpu/operand.h"
#include "stp/cpu/sums.h"
#include "stp/device/kernel_arguments.h"

namespace stp::cpu {

template <typename T>
void compute(const kernel::Fill& k) {
  const Out<T> elements(k.tensor);
  std::fill_n(static_cast<T*>(elements), k.tensor.elements(), static_cast<T>(k.value));
}

template <typename T>
void compute(const kernel::Copy& k) {
  const In<T> from(k.from);
  const Out<T> to(k.to);
  std::copy_n(static_cast<const T*>(from), k.from.elements(), static_cast<T*>(to));
}

template <typename T>
void compute(const kernel::CopyColumns& k) {
  const In<T> from(k.from);
  const InOut<T> to(k.to);
  for (int64_t row = 0; row < k.from.rows; ++row)
    std::copy_n(from + row * k.from.columns + k.from_column, k.count, to + row * k.to.columns + k.to_column);
}

template <typename T>
void compute(const kernel::Scale& k) {
  const In<T> in(k.in);
  const Out<T> out(k.out);
  const T factor = static_cast<T>(k.factor);
  for (int64_t i = 0; i < k.in.elements(); ++i) out[i] = factor * in[i];
}

template <typename T>
void compute(const kernel::AddRows& k) {
  const In<T> in(k.in);
  const InOut<T> all(k.out);
  T* const out = all + k.first * k.out.columns;
  for (int64_t i = 0; i < k.in.elements(); ++i) out[i] += in[i];
}

template <typename T>
void compute(const kernel::CheckFinite& k) {
  const In<T> values(k.tensor);
  for (int64_t i = 0; i < k.tensor.elements(); ++i)
    if (!std::isfinite(values[i])) throw std::runtime_error(k.what + " is not finite");
}

template <typename T>
void compute(const kernel::AddBias& k) {
  const In<T> bias(k.bias);
  const InOut<T> all(k.x);
  const T factor = static_cast<T>(k.factor);
  for (int64_t row = 0; row < k.x.rows; ++row) {
    T* const x = all + row * k.x.columns;
    for (int64_t i = 0; i < k.x.columns; ++i) x[i] += factor * bias[i];
  }
}

template <typename T>
void compute(const kernel::AddColumnSums& k) {
  const In<T> all(k.gradient);
  T* const sums = data<T>(k.bias_gradient);
  for (int64_t row = 0; row < k.gradient.rows; ++row) {
    const T* const gradient = all + row * k.gradient.columns;
    for (int64_t i = 0; i < k.gradient.columns; ++i) sums[i] += gradient[i];
  }
}

template <typename T>
void compute(const kernel::NormForward& k) {
  const int64_t columns = k.x.columns;
  const In<T> all(k.x), gain(k.gain);
  const InIfAny<T> bias(k.bias);
  const Out<T> out(k.y);
  T* const statistics = data<T>(k.statistics);
  for (int64_t row = 0; row < k.x.rows; ++row) {
    const T* const x = all + row * columns;
    T *const y = out + row * columns, *const own = statistics + row * k.statistics.columns;
    const double mean =
        k.centred ? sum_of(columns, [&](int64_t i) { return x[i]; }) / static_cast<double>(columns) : 0;
    const double variance = sum_of(columns,
                                   [&](int64_t i) {
                                     const double from_mean = static_cast<double>(x[i]) - mean;
                                     return from_mean * from_mean;
                                   }) /
                            static_cast<double>(columns);
    const T m = static_cast<T>(mean), r = static_cast<T>(1 / std::sqrt(variance + k.epsilon));
    if (k.centred) own[0] = m;
    own[k.statistics.columns - 1] = r;
    for (int64_t i = 0; i < columns; ++i) y[i] = (x[i] - m) * r * gain[i];
    if (!k.centred) continue;  // −0 stays
    for (int64_t i = 0; i < columns; ++i) y[i] += bias == nullptr ? T{0} : bias[i];
  }
}

template <typename T>
void compute(const kernel::NormBackward& k) {
  const int64_t columns = k.x.columns;
  const In<T> all_dy(k.dy), all_x(k.x), gain(k.gain);
  const InIfAny<T> residual(k.residual);
  const Out<T> out(k.dx);
  const T* const statistics = data<T>(k.statistics);
  T* const gain_gradient = data<T>(k.gain_gradient);
  T* const bias_gradient = k.bias_gradient ? data<T>(k.bias_gradient) : nullptr;
  const T factor = static_cast<T>(k.residual_factor);
  for (int64_t row = 0; row < k.x.rows; ++row) {
    const T *dy = all_dy + row * columns, *x = all_x + row * columns;
    T* const dx = out + row * columns;
    if (k.centred) {
      const T m = statistics[2 * row], r = statistics[2 * row + 1];
      // With n = (x − mean)·r and g = dy·gain: dx = r·(g − mean(g) − n·mean(g·n)).
      const double mean = sum_of(columns, [&](int64_t i) { return dy[i] * gain[i]; });
      const double along = sum_of(columns, [&](int64_t i) { return dy[i] * gain[i] * (x[i] - m) * r; });
      const T shift = static_cast<T>(mean / static_cast<double>(columns));
      const T pull = static_cast<T>(along / static_cast<double>(columns));
      for (int64_t i = 0; i < columns; ++i) {
        const T normed = (x[i] - m) * r, g = dy[i];
        gain_gradient[i] += g * normed;
        if (bias_gradient != nullptr) bias_gradient[i] += g;
        dx[i] = r * (g * gain[i] - shift - normed * pull);
      }
    } else {
      const T r = statistics[row];
      const double along = sum_of(columns, [&](int64_t i) {
        return static_cast<double>(dy[i]) * static_cast<double>(gain[i]) * static_cast<double>(x[i]);
      });
      // y = x·r·gain, ∂r/∂x = −r³·x / columns
      const T pull = static_cast<T>(along * static_cast<double>(r) * static_cast<double>(r) *
                                    static_cast<double>(r) / static_cast<double>(columns));
      for (int64_t i = 0; i < columns; ++i) gain_gradient[i] += dy[i] * x[i] * r;
      for (int64_t i = 0; i < columns; ++i) dx[i] = dy[i] * gain[i] * r - x[i] * pull;
    }
    if (residual == nullptr) continue;
    for (int64_t i = 0; i < columns; ++i) dx[i] += factor * residual[row * columns + i];
  }
}

/// The normal distribution.
template <typename T>
T normal_distribution(T x) {
  return (T{1} + std::erf(x * static_cast<T>(std::numbers::sqrt2 / 2))) / T{2};
}

// The functions of kernel::Pointwise, and their derivatives.
struct Gelu {
  template <typename T>
  static T value(T x) {
    return x * normal_distribution(x);
  }
  template <typename T>
  static T derivative(T x) {
    constexpr T kDensityAtZero = static_cast<T>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
    return normal_distribution(x) + x * (kDensityAtZero * exponential(-x * x / T{2}));
  }
};
struct GeluTanh {
  static constexpr double kScale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi, kCubic = 0.044715;
  template <typename T>
  static T tanh_of(T x) {
    return std::tanh(static_cast<T>(kScale) * (x + static_cast<T>(kCubic) * x * x * x));
  }
  template <typename T>
  static T value(T x) {
    return x / T{2} * (T{1} + tanh_of(x));
  }
  template <typename T>
  static T derivative(T x) {
    const T t = tanh_of(x), inner = static_cast<T>(kScale) * (T{1} + static_cast<T>(3 * kCubic) * x * x);
    return (T{1} + t) / T{2} + x / T{2} * (T{1} - t * t) * inner;
  }
};
struct SquaredRelu {
  template <typename T>
  static T value(T x) {
    return x > T{0} ? x * x : T{0};
  }
  template <typename T>
  static T derivative(T x) {
    return x > T{0} ? T{2} * x : T{0};
  }
};

template <typename T>
void compute(const kernel::ActivationForward& k) {
  const In<T> x(k.x);
  const Out<T> out(k.out);
  kernel::with_function<Gelu, GeluTanh, SquaredRelu>(k.function, [&](auto function) {
    for (int64_t i = 0; i < k.x.elements(); ++i) out[i] = function.value(x[i]);
  });
}

template <typename T>
void compute(const kernel::ActivationBackward& k) {
  const In<T> x(k.x), gradient(k.out_gradient);
  const Out<T> x_gradient(k.x_gradient);
  kernel::with_function<Gelu, GeluTanh, SquaredRelu>(k.function, [&](auto function) {
    for (int64_t i = 0; i < k.x.elements(); ++i) x_gradient[i] = gradient[i] * function.derivative(x[i]);
  });
}

/// Cosines and sines of the rotary angles: each is seq × half.
template <typename T>
struct RotaryTable {
  std::vector<T> cosine, sine;

  RotaryTable(int seq, int rotated, double theta) {
    for (int position = 0; position < seq; ++position) {
      for (int i = 0; i < rotated / 2; ++i) {
        const double angle = position * std::pow(theta, -2.0 * i / rotated);
        cosine.push_back(static_cast<T>(std::cos(angle)));
        sine.push_back(static_cast<T>(std::sin(angle)));
      }
    }
  }
  static const RotaryTable& of(int seq, int rotated, double theta) {
    static std::mutex mutex;
    static std::map<std::tuple<int, int, double>, RotaryTable> tables;
    const std::lock_guard lock(mutex);
    return tables.try_emplace({seq, rotated, theta}, seq, rotated, theta).first->second;
  }
};

/// Rotates 2 · half elements of each head of one row by `direction` (1 or −1) times the angles with these
/// cosines and sines.
template <typename T>
void rotate(T* head, int64_t heads, int64_t dim, int64_t half, const T* cosine, const T* sine, T direction) {
  for (int64_t h = 0; h < heads; ++h, head += dim) {
    for (int64_t i = 0; i < half; ++i) {
      const T a = head[i], b = head[i + half], s = direction * sine[i];
      head[i] = a * cosine[i] - b * s;
      head[i + half] = b * cosine[i] + a * s;
    }
  }
}

/// Adds `bias`, which may be null, to all rows of qkv, and rotates their queries and keys.
template <typename T>
void rotate_all(const AttentionShape& shape, double theta, T* qkv, const T* bias, T direction) {
  const auto& table = RotaryTable<T>::of(shape.cp * shape.seq, shape.rotated(), theta);
  const int64_t half = shape.rotated() / 2, columns = shape.qkv_columns();
  for (int64_t row = 0; row < shape.tokens(); ++row, qkv += columns) {
    if (bias != nullptr)
      for (int64_t i = 0; i < columns; ++i) qkv[i] += bias[i];
    const int64_t position = position_of(shape.cp, shape.cp_index, shape.seq, row % shape.seq);
    // Query heads and key heads are adjacent.
    rotate(qkv, shape.q_heads + shape.kv_heads, shape.head_dim, half, table.cosine.data() + position * half,
           table.sine.data() + position * half, direction);
  }
}

template <typename T>
void compute(const kernel::BiasRopeForward& k) {
  rotate_all<T>(k.shape, k.theta, InOut<T>(k.qkv), InIfAny<T>(k.bias), 1);
}

template <typename T>
void compute(const kernel::RopeBackward& k) {
  rotate_all<T>(k.shape, k.theta, InOut<T>(k.qkv_gradient), nullptr, -1);
}

template <typename T>
void compute(const kernel::SwigluForward& k) {
  const int64_t columns = k.out.columns;
  const In<T> gate_up(k.gate_up);
  const Out<T> all(k.out);
  for (int64_t row = 0; row < k.out.rows; ++row) {
    const T *gate = gate_up + 2 * row * columns, *up = gate + columns;
    T* const out = all + row * columns;
    for (int64_t i = 0; i < columns; ++i) out[i] = gate[i] / (T{1} + exponential(-gate[i])) * up[i];
  }
}

template <typename T>
void compute(const kernel::SwigluBackward& k) {
  const int64_t columns = k.out_gradient.columns;
  const In<T> gate_up(k.gate_up), gradient(k.out_gradient);
  const Out<T> gate_up_gradient(k.gate_up_gradient);
  for (int64_t row = 0; row < k.out_gradient.rows; ++row) {
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

template <typename T>
void compute(const kernel::EmbeddingForward& k) {
  const int32_t* const tokens = data<int32_t>(k.tokens);
  const In<T> table(k.table);
  const Out<T> all(k.out);
  for (int64_t row = 0; row < k.out.rows; ++row) {
    const int64_t entry = tokens[row] - k.first;
    T* const out = all + row * k.out.columns;
    if (entry >= 0 && entry < k.table.rows)
      std::copy_n(table + entry * k.out.columns, k.out.columns, out);
    else
      std::fill_n(out, k.out.columns, T{0});
  }
}

template <typename T>
void compute(const kernel::EmbeddingBackward& k) {
  const int64_t columns = k.out_gradient.columns;
  const int32_t* const tokens = data<int32_t>(k.tokens);
  const In<T> all(k.out_gradient);
  T* const table_gradient = data<T>(k.table_gradient);
  for (int64_t row = 0; row < k.out_gradient.rows; ++row) {
    const int64_t entry = tokens[row] - k.first;
    if (entry < 0 || entry >= k.table_gradient.rows) continue;
    const T* const gradient = all + row * columns;
    T* const to = table_gradient + entry * columns;
    for (int64_t i = 0; i < columns; ++i) to[i] += gradient[i];
  }
}

template <typename T>
void compute(const kernel::ExponentialSums& k) {
  const int64_t columns = k.logits.columns;
  const In<T> all(k.logits);
  const int32_t* const targets = data<int32_t>(k.targets);
  T *const maximum = data<T>(k.maximum), *const own = data<T>(k.own), *const sums = data<T>(k.sums);
  for (int64_t row = 0; row < k.logits.rows; ++row) {
    const T* const logits = all + row * columns;
    const T shift = maximum[row] = own[row] = largest_of<T>(columns, logits);
    // Exponentials first, then their sum: a loop of floats and doubles is not vectorised.
    std::array<T, 256> part;
    double total = 0;
    for (int64_t begin = 0; begin < columns; begin += std::ssize(part)) {
      const int64_t count = std::min<int64_t>(std::ssize(part), columns - begin);
      for (int64_t i = 0; i < count; ++i) part[i] = exponential(logits[begin + i] - shift);
      total += sum_of(count, [&](int64_t i) { return part[i]; });
    }
    sums[2 * row] = static_cast<T>(total);
    const int64_t target = targets[row] - k.first;
    sums[2 * row + 1] = target >= 0 && target < columns ? logits[target] : T{0};
  }
}

template <typename T>
void compute(const kernel::RescaleRows& k) {
  const T *const own = data<T>(k.own), *const maximum = data<T>(k.maximum);
  const T* const sums = k.sums ? data<T>(k.sums) : nullptr;
  const InOut<T> all(k.x);
  for (int64_t row = 0; row < k.x.rows; ++row) {
    const double sum = sums == nullptr ? 1 : static_cast<double>(sums[2 * row]);
    const T by = static_cast<T>(k.factor / sum) * exponential(own[row] - maximum[row]);
    for (int64_t i = 0; i < k.columns; ++i) all[row * k.x.columns + i] *= by;
  }
}

template <typename T>
void compute(const kernel::CrossEntropy& k) {
  const int64_t columns = k.logits.columns;
  const T* const maximum = data<T>(k.maximum);
  const InOut<T> all(k.logits);
  if (!k.sums) {
    for (int64_t i = 0; i < k.logits.elements(); ++i)
      all[i] = exponential(all[i] - maximum[i / columns]) * static_cast<T>(k.factor);
    return;
  }
  const T* const sums = data<T>(k.sums);
  const int32_t* const targets = data<int32_t>(k.targets);
  double total = 0;
  for (int64_t row = 0; row < k.logits.rows; ++row) {
    T* const logits = all + row * columns;
    const T shift = maximum[row];
    total += std::log(static_cast<double>(sums[2 * row])) + static_cast<double>(shift) -
             static_cast<double>(sums[2 * row + 1]);
    const T share = static_cast<T>(k.factor / static_cast<double>(sums[2 * row]));
    for (int64_t i = 0; i < columns; ++i) logits[i] = exponential(logits[i] - shift) * share;
    const int64_t target = targets[row] - k.first;
    if (target >= 0 && target < columns) logits[target] -= static_cast<T>(k.factor);
  }
  *data<T>(k.loss) += static_cast<T>(k.factor * total);
}

template <typename T>
void compute(const kernel::AddSumOfSquares& k) {
  const In<T> x(k.x);
  *data<double>(k.total) += k.factor * sum_of_squares<T>(k.x.elements(), x);
}

template <typename T>
void compute(const kernel::AdamW& k) {
  const AdamW& options = k.options;
  double scale = 1;
  if (k.total)
    if (const double norm = std::sqrt(*data<double>(k.total)); norm > k.max_norm) scale = k.max_norm / norm;
  const T* const gradient = data<T>(k.gradient);
  T *const first = data<T>(k.first_moment), *const second = data<T>(k.second_moment),
           *const master = data<T>(k.master);
  const T beta1 = static_cast<T>(options.beta1), beta2 = static_cast<T>(options.beta2);
  const T rest1 = static_cast<T>(1 - options.beta1), rest2 = static_cast<T>(1 - options.beta2);
  const T unbias1 = static_cast<T>(1 / (1 - std::pow(options.beta1, options.step)));
  const T unbias2 = static_cast<T>(1 / (1 - std::pow(options.beta2, options.step)));
  const T rate = static_cast<T>(options.learning_rate), epsilon = static_cast<T>(options.epsilon);
  const T keep = static_cast<T>(1 - options.learning_rate * options.weight_decay);
  const T factor = static_cast<T>(scale);
  for (int64_t i = 0; i < k.gradient.elements(); ++i) {
    const T g = gradient[i] * factor;
    first[i] = beta1 * first[i] + rest1 * g;
    second[i] = beta2 * second[i] + rest2 * g * g;
    master[i] = master[i] * keep - rate * (first[i] * unbias1) / (std::sqrt(second[i] * unbias2) + epsilon);
  }
  if (k.has_master()) round(k.master.elements(), master, data<Bfloat16>(k.weight));
}

}  // namespace stp::cpu
