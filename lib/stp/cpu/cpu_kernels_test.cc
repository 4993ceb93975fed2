// Every kernel as the runtime calls it, on a stream of a device whose fresh memory is NaN, in every type,
// against plain loops in double. attention_test.cc tests attention, refused_kernels_test.cc invalid
// arguments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "stp/cpu/blas.h"
#include "support/kernel_fixture.h"

namespace stp::cpu {
namespace {

class CpuKernels : public KernelFixture {};
INSTANTIATE_TEST_SUITE_P(, CpuKernels, kTypes, type_name);

// OpenBLAS supports a limited number of concurrent callers: here more threads than a run of 64 ranks has.
TEST(BlasGemm, ManyThreadsMultiplyAtOnce) {
  constexpr int kThreads = 160, kSize = 40;
  BlasCounter counter;
  std::vector<std::vector<float>> results(kThreads, std::vector<float>(kSize * kSize, NAN));
  const std::vector<float> ones(kSize * kSize, 1.0F);
  std::vector<std::thread> threads;
  for (auto& result : results)
    threads.emplace_back([&] {
      for (int repeat = 0; repeat < 20; ++repeat)
        blas_gemm<float>(counter, {false, true, kSize, kSize, kSize}, 1, {ones.data(), kSize},
                         {ones.data(), kSize}, 0, {result.data(), kSize});
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_THAT(result, testing::Each(float{kSize}));
  EXPECT_EQ(counter.flops, 2.0 * kSize * kSize * kSize * 20 * kThreads);
}

TEST_P(CpuKernels, FreshMemoryIsPoison) {  // or the other tests would prove less
  for (const double value : get(fresh(2, 3))) EXPECT_TRUE(std::isnan(value));
}

TEST_P(CpuKernels, WholeTensors) {
  const Values x = random(15);
  const Tensor in = put(5, 3, x), copied = fresh(5, 3), scaled = fresh(5, 3), filled = fresh(5, 3);
  issue(kernel::Copy{in, copied});
  issue(kernel::Scale{-0.5, in, scaled});
  issue(kernel::Fill{filled, 0.25});
  Values half = x;
  for (double& value : half) value *= -0.5;
  EXPECT_EQ(get(copied), x);
  EXPECT_EQ(get(scaled), half);
  EXPECT_EQ(get(filled), Values(15, 0.25));
}

TEST_P(CpuKernels, WhatIsNotFiniteFailsTheRun) {
  Values x = random(15);
  issue(kernel::CheckFinite{put(5, 3, x), "all of it"});
  device_.synchronize();
  x[14] = -INFINITY;
  issue(kernel::CheckFinite{put(5, 3, x), "the last of it"});
  EXPECT_THROW(device_.synchronize(), Cancelled);
  EXPECT_THAT(backend_->guard().failure(), testing::HasSubstr("the last of it"));
}

TEST_P(CpuKernels, Gemm) {
  double flops = 0;
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{7, 5, 3}, {1, 1, 1}, {33, 130, 65}, {64, 1, 129}, {3, 4, 0}})
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const double beta : {0.0, 1.0, -0.5}) {
          const Values a = random(m * k), b = random(k * n), c = random(m * n);
          Values plain(m * n);
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) {
              for (int64_t e = 0; e < k; ++e)
                plain[i * n + j] += 0.75 * a[ta ? e * m + i : i * k + e] * b[tb ? j * k + e : e * n + j];
              if (beta != 0) plain[i * n + j] += beta * c[i * n + j];
            }
          for (const bool sums : {false, true}) {
            const auto old = [&, &m = m, &n = n] { return sums ? put_sums(m, n, c) : put(m, n, c); };
            const auto uninitialised = [&, &m = m, &n = n] { return fresh(m, n, sums ? sums_ : type_); };
            const auto expect_plain = [&, &m = m, &n = n, &k = k](const Tensor& to, const Tensor& from) {
              issue(kernel::Gemm{ta, tb, 0.75, ta ? put(k, m, a) : put(m, k, a),
                                 tb ? put(n, k, b) : put(k, n, b), beta, to, from});
              expect_near(to, plain, 10);
              flops += 2.0 * static_cast<double>(m * n * k);
            };
            expect_plain(beta == 0 ? uninitialised() : old(), {});
            expect_plain(uninitialised(), old());
            const Tensor both = old();
            expect_plain(both, both);
          }
        }
  const BlasUse use = blas_use(*backend_, 0);
  EXPECT_EQ(use.flops, flops);
  EXPECT_GT(use.seconds, 0);
}

// Of RMSNorm and, centred, LayerNorm; the Jacobian in full: with u = (x − centred · mean) / deviation,
// ∂u_i/∂x_j = (δ_ij − (centred + u_i·u_j) / n) / deviation.
TEST_P(CpuKernels, Norms) {
  for (const bool centred : {false, true})
    for (const int64_t columns : {1, 7, 130}) {
      const int64_t rows = 5;
      const double n = static_cast<double>(columns);
      const Values x = random(rows * columns), gain = random(columns),
                   bias = centred ? random(columns) : Values(columns), dy = random(rows * columns),
                   residual = random(rows * columns), before = random(columns), bias_before = random(columns);
      Values y(x.size()), without_bias(x.size()), statistics, dx(x.size()), with_residual(x.size()),
          gain_gradient = before, bias_gradient = bias_before;
      for (int64_t row = 0; row < rows; ++row) {
        const double* in = &x[row * columns];
        double mean = 0, squares = 0;
        for (int64_t i = 0; centred && i < columns; ++i) mean += in[i] / n;
        for (int64_t i = 0; i < columns; ++i) squares += (in[i] - mean) * (in[i] - mean) / n;
        const double deviation = std::sqrt(squares + 1e-3);
        if (centred) statistics.push_back(mean);
        statistics.push_back(1 / deviation);
        const auto u = [&](int64_t i) { return (in[i] - mean) / deviation; };
        for (int64_t j = 0; j < columns; ++j) {
          const int64_t at = row * columns + j;
          without_bias[at] = u(j) * gain[j];
          y[at] = without_bias[at] + bias[j];
          gain_gradient[j] += dy[at] * u(j);
          bias_gradient[j] += dy[at];
          for (int64_t i = 0; i < columns; ++i)
            dx[at] += dy[row * columns + i] * gain[i] *
                      ((i == j ? 1 : 0) - ((centred ? 1 : 0) + u(i) * u(j)) / n) / deviation;
          with_residual[at] = dx[at] + 0.25 * residual[at];
        }
      }
      const Tensor tx = put(rows, columns, x), tg = put(1, columns, gain), ty = fresh(rows, columns),
                   ts = fresh(rows, centred ? 2 : 1, sums_), tdx = fresh(rows, columns),
                   in_place = put(rows, columns, dy), gains = put_sums(1, columns, before),
                   again = put_sums(1, columns, before),
                   biases = centred ? put_sums(1, columns, bias_before) : Tensor{};
      issue(kernel::NormForward{centred, tx, tg, centred ? put(1, columns, bias) : Tensor{}, 1e-3, ty, ts});
      expect_near(ty, y, 10);
      expect_near(ts, statistics, 10);
      issue(kernel::NormBackward{centred, put(rows, columns, dy), tx, tg, ts, 0.25,
                                 put(rows, columns, residual), tdx, gains, biases});
      expect_near(tdx, with_residual, 100);
      expect_near(gains, gain_gradient, 10);
      if (centred) expect_near(biases, bias_gradient, 10);
      // Without a bias.
      issue(kernel::NormForward{centred, tx, tg, Tensor{}, 1e-3, ty, ts});
      expect_near(ty, without_bias, 10);
      issue(kernel::NormBackward{centred, in_place, tx, tg, ts, 0.25, Tensor{}, in_place, again, Tensor{}});
      expect_near(in_place, dx, 100);
      expect_near(again, gain_gradient, 10);
    }
}

// x · Φ(x), Φ by its series about zero and, far from it, by what it tends to; and its derivative, by central
// differences of that.
double plain_gelu(double x) {
  if (std::abs(x) > 6) return x > 0 ? x : 0;
  double term = x, sum = x;
  for (int k = 1; k < 200; ++k) {
    term *= -x * x / (2.0 * k);
    sum += term / (2 * k + 1);
  }
  return x * (0.5 + sum / std::sqrt(2 * std::acos(-1.0)));
}

// By the logistic function, as 1 + tanh(z) = 2 / (1 + exp(−2z)).
double plain_gelu_tanh(double x) {
  return x / (1 + std::exp(-2 * std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

TEST_P(CpuKernels, Activations) {
  const std::pair<kernel::Pointwise, double (*)(double)> functions[] = {
      {kernel::Pointwise::gelu, plain_gelu},
      {kernel::Pointwise::gelu_tanh, plain_gelu_tanh},
      {kernel::Pointwise::squared_relu, [](double x) { return x * std::max(x, 0.0); }}};
  for (const auto& [function, plain] : functions) {
    // Differences of fourth order are exact of the squared ReLU, but across its corner.
    const bool corner = function == kernel::Pointwise::squared_relu;
    const double h = corner ? 0.01 : 1e-4;
    Values x = random(33), dy = random(33);
    x[0] = 0;
    x[1] = rounded(30, type_);
    x[2] = rounded(-30, type_);
    if (corner)
      for (double& each : x) each = rounded(each + (each < 0 ? -0.1 : 0.1), type_);
    Values out(33), dx(33);
    for (int i = 0; i < 33; ++i) {
      out[i] = plain(x[i]);
      dx[i] = dy[i] * (8 * (plain(x[i] + h) - plain(x[i] - h)) - plain(x[i] + 2 * h) + plain(x[i] - 2 * h)) /
              (12 * h);
    }
    const Tensor tx = put(3, 11, x), tout = fresh(3, 11), tdx = fresh(3, 11);
    issue(kernel::ActivationForward{function, tx, tout});
    expect_near(tout, out);
    issue(kernel::ActivationBackward{function, tx, put(3, 11, dy), tdx});
    expect_near(tdx, dx, 10);
  }
}

TEST_P(CpuKernels, BiasesAreAdded) {
  const Values x = random(5 * 7), bias = random(7);
  Values plain = x;
  for (size_t i = 0; i < plain.size(); ++i) plain[i] += 0.25 * bias[i % 7];
  const Tensor in_place = put(5, 7, x);
  issue(kernel::AddBias{0.25, put(1, 7, bias), in_place});
  expect_near(in_place, plain);
}

constexpr AttentionShape kShape{.batch = 2, .seq = 37, .q_heads = 6, .kv_heads = 2, .head_dim = 10};

TEST_P(CpuKernels, BiasAndRotaryEmbedding) {
  const int64_t columns = kShape.qkv_columns(), half = kShape.head_dim / 2;
  const Values qkv = random(kShape.tokens() * columns), bias = random(columns);
  const auto rotated = [&](Values rows, double direction) {
    for (int64_t row = 0; row < kShape.tokens(); ++row)
      for (int64_t head = 0; head < kShape.q_heads + kShape.kv_heads; ++head)
        for (int64_t i = 0; i < half; ++i) {
          const double angle = direction * static_cast<double>(row % kShape.seq) *
                               std::pow(1e4, -2.0 * static_cast<double>(i) / kShape.head_dim);
          double& a = rows[row * columns + head * kShape.head_dim + i];
          double& b = (&a)[half];
          const double old = a;
          a = old * std::cos(angle) - b * std::sin(angle);
          b = b * std::cos(angle) + old * std::sin(angle);
        }
    return rows;
  };
  Values biased = qkv;
  for (size_t i = 0; i < biased.size(); ++i) biased[i] += bias[i % columns];
  const Tensor forward = put(kShape.tokens(), columns, qkv), back = put(kShape.tokens(), columns, qkv);
  issue(kernel::BiasRopeForward{kShape, 1e4, put(1, columns, bias), forward});
  issue(kernel::RopeBackward{kShape, 1e4, back});
  expect_near(forward, rotated(biased, 1));
  expect_near(back, rotated(qkv, -1));
}

TEST_P(CpuKernels, ColumnSumsAreAdded) {
  const Values x = random(13 * 7), before = random(7);
  Values plain = before;
  for (size_t i = 0; i < x.size(); ++i) plain[i % 7] += x[i];
  const Tensor sums = put_sums(1, 7, before);
  issue(kernel::AddColumnSums{put(13, 7, x), sums});
  expect_near(sums, plain);
}

TEST_P(CpuKernels, ColumnsAreCopied) {
  const Values from = random(3 * 5), to = random(3 * 4);
  Values plain = to;
  for (int row = 0; row < 3; ++row)
    for (int i = 0; i < 2; ++i) plain[row * 4 + 1 + i] = from[row * 5 + 3 + i];
  const Tensor target = put(3, 4, to);
  issue(kernel::CopyColumns{put(3, 5, from), 3, target, 1, 2});
  expect_near(target, plain);
}

TEST_P(CpuKernels, SwiGlu) {
  for (const int64_t columns : {1, 6, 131}) {
    const int64_t rows = 3;
    Values gate_up = random(rows * 2 * columns);
    gate_up[0] = 120;  // where exp itself overflows
    gate_up[2 * columns] = -120;
    const Values dy = random(rows * columns);
    Values out(dy.size()), gradient(gate_up.size());
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        const int64_t gate = i * 2 * columns + j, up = gate + columns;
        const double sigmoid = 1 / (1 + std::exp(-gate_up[gate])), silu = gate_up[gate] * sigmoid;
        out[i * columns + j] = silu * gate_up[up];
        gradient[up] = dy[i * columns + j] * silu;
        gradient[gate] = dy[i * columns + j] * gate_up[up] * sigmoid * (1 + gate_up[gate] * (1 - sigmoid));
      }
    const Tensor in = put(rows, 2 * columns, gate_up), to = fresh(rows, columns),
                 back = fresh(rows, 2 * columns);
    issue(kernel::SwigluForward{in, to});
    issue(kernel::SwigluBackward{in, put(rows, columns, dy), back});
    expect_near(to, out, 10);
    expect_near(back, gradient, 10);
  }
}

// The vocabulary on several ranks: their outputs add up to that of the full table, and each rank's gradient
// is its share.
TEST_P(CpuKernels, EmbeddingInShares) {
  const int64_t vocabulary = 12, columns = 5;
  const std::vector<int32_t> tokens{11, 0, 5, 6, 0, 3};
  const auto rows = std::ssize(tokens);
  const Values table = random(vocabulary * columns), dy = random(rows * columns);
  const Values before = random(vocabulary * columns);
  for (const int64_t share : {12, 6, 3})
    for (int64_t first = 0; first < vocabulary; first += share) {
      const auto own = [&](const Values& whole) {
        return Values(whole.begin() + first * columns, whole.begin() + (first + share) * columns);
      };
      Values out(dy.size()), gradient = own(before);
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j)
          if (tokens[i] >= first && tokens[i] < first + share) {
            out[i * columns + j] = table[tokens[i] * columns + j];
            gradient[(tokens[i] - first) * columns + j] += dy[i * columns + j];
          }
      const Tensor to = fresh(rows, columns), back = put_sums(share, columns, own(before));
      issue(kernel::EmbeddingForward{indices(tokens), put(share, columns, own(table)), first, to});
      issue(kernel::EmbeddingBackward{indices(tokens), put(rows, columns, dy), first, back});
      expect_near(to, out);
      expect_near(back, gradient);
    }
}

TEST_P(CpuKernels, RowMaximumIsFoundWhereverItIs) {
  for (const int64_t columns : {1, 7, 8, 29}) {
    Values x = random(columns * columns);  // in row i at i
    for (int64_t i = 0; i < columns; ++i) x[i * columns + i] = 9 + static_cast<double>(i % 3);
    const Tensor maximum = fresh(columns, 1, sums_), own = fresh(columns, 1, sums_);
    issue(kernel::ExponentialSums{put(columns, columns, x), indices(std::vector<int32_t>(columns)), 0,
                                  maximum, own, fresh(columns, 2, sums_)});
    const Values values = get(maximum);
    EXPECT_EQ(values, get(own));
    for (int64_t i = 0; i < columns; ++i) EXPECT_EQ(values[i], 9 + static_cast<double>(i % 3)) << columns;
  }
}

TEST_P(CpuKernels, CrossEntropyInShares) {
  const int64_t rows = 4, vocabulary = 1084;  // over the block of a sum
  Values logits = random(rows * vocabulary);
  for (double& value : logits) value *= 8;
  for (int64_t i = 0; i < vocabulary; ++i)
    // One row far from the others, and all of it negative.
    logits[i] = rounded(logits[i] - 300, type_);
  const std::vector<int32_t> targets{0, 1083, 541, 542};
  const double factor = 0.25, loss_before = 2;
  double loss = loss_before;
  Values gradient(logits.size());
  for (int64_t i = 0; i < rows; ++i) {
    const double* row = &logits[i * vocabulary];
    double sum = 0;
    for (int64_t j = 0; j < vocabulary; ++j) sum += std::exp(row[j]);
    loss += factor * (std::log(sum) - row[targets[i]]);
    for (int64_t j = 0; j < vocabulary; ++j)
      gradient[i * vocabulary + j] = factor * (std::exp(row[j]) / sum - (j == targets[i] ? 1 : 0));
  }
  for (const int64_t ranks : {1, 2, 4}) {
    const int64_t share = vocabulary / ranks;
    const auto own = [&](const Values& whole, int64_t rank) {
      Values part;
      for (int64_t i = 0; i < rows; ++i)
        part.insert(part.end(), &whole[i * vocabulary + rank * share],
                    &whole[i * vocabulary + rank * share] + share);
      return part;
    };
    Values maximum(rows, -INFINITY), sums(2 * rows);
    std::vector<std::pair<Tensor, Tensor>> shares;  // own maxima and sums
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const auto& [highest, sum] = shares.emplace_back(fresh(rows, 1, sums_), fresh(rows, 2, sums_));
      issue(kernel::ExponentialSums{put(rows, share, own(logits, rank)), indices(targets), rank * share,
                                    fresh(rows, 1, sums_), highest, sum});
      const Values part = get(highest);
      for (int64_t i = 0; i < rows; ++i) {
        EXPECT_EQ(part[i], *std::max_element(&logits[i * vocabulary + rank * share],
                                             &logits[i * vocabulary + rank * share] + share));
        maximum[i] = std::max(maximum[i], part[i]);
      }
    }
    for (const auto& [highest, sum] : shares) {  // brought to all ranks' maximum
      issue(kernel::RescaleRows{highest, put_sums(rows, 1, maximum), {}, 1, sum, 1});
      const Values part = get(sum);
      for (int64_t i = 0; i < 2 * rows; ++i) sums[i] += part[i];
    }
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const Tensor in_place = put(rows, share, own(logits, rank)), total = put_sums(1, 1, {loss_before});
      issue(kernel::CrossEntropy{put_sums(rows, 1, maximum), put_sums(rows, 2, sums), indices(targets),
                                 rank * share, factor, in_place, total});
      expect_near(in_place, own(gradient, rank));
      expect_near(total, {loss}, 10);
    }
  }
}

TEST_P(CpuKernels, SumsOfSquaresAreAdded) {
  const Values x = random(101);
  double plain = 0.5;
  for (const double value : x) plain += 0.25 * value * value;
  const Tensor total = fresh(1, 1, DType::f64);
  issue(kernel::Fill{total, 0.5});
  issue(kernel::AddSumOfSquares{0.25, put(101, 1, x), total});
  expect_near(total, {plain});  // in double whatever the type
}

TEST_P(CpuKernels, AdamW) {
  const int64_t count = 77;
  for (const double max_norm : {0.0, 0.5, 1e9}) {  // no total; clipped; too small to be
    Values master = random(count), first(count), second(count);
    const Tensor tmaster = put_sums(7, 11, master), m = put_sums(7, 11, first), v = put_sums(7, 11, second);
    const Tensor weight = type_ == sums_ ? tmaster : fresh(7, 11);
    for (int step = 1; step <= 3; ++step) {
      const AdamW options{.learning_rate = 0.01,
                          .beta1 = 0.8,
                          .beta2 = 0.9,
                          .epsilon = 1e-6,
                          .weight_decay = 0.1,
                          .step = step};
      const Values g = random(count);
      Tensor total;
      if (max_norm > 0) {
        total = fresh(1, 1, DType::f64);
        issue(kernel::Fill{total, 16});
      }
      issue(kernel::AdamW{options, max_norm, total, put_sums(7, 11, g), m, v, tmaster, weight});
      const double scale = max_norm == 0.5 ? 0.5 / 4 : 1;
      for (int64_t i = 0; i < count; ++i) {
        first[i] = 0.8 * first[i] + 0.2 * scale * g[i];
        second[i] = 0.9 * second[i] + 0.1 * scale * g[i] * scale * g[i];
        const double mean = first[i] / (1 - std::pow(0.8, step)),
                     square = second[i] / (1 - std::pow(0.9, step));
        master[i] -= 0.01 * 0.1 * master[i] + 0.01 * mean / (std::sqrt(square) + 1e-6);
      }
      expect_near(m, first);
      expect_near(v, second);
      expect_near(tmaster, master);
      Values stored = get(tmaster);
      for (double& value : stored) value = rounded(value, type_);
      EXPECT_EQ(get(weight), stored);
    }
  }
}

}  // namespace
}  // namespace stp::cpu
