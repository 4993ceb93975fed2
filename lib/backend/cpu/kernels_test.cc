// The kernels against plain loops, and each one's gradient against central differences, in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "stp/cpu/attention.h"
#include "stp/cpu/elementwise.h"

namespace stp {
namespace {

using Values = std::vector<double>;

Values random_values(size_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  Values values(count);
  for (double& value : values) value = normal(engine);
  return values;
}

// What fresh memory may hold: a kernel that reads it shows.
Values poison(size_t count) { return Values(count, NAN); }

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Holds `gradient` against central differences of `value` in some elements of `at`.
void expect_gradient(Values at, const Values& gradient, const std::function<double(const Values&)>& value) {
  ASSERT_EQ(at.size(), gradient.size());
  double largest = 0;
  for (const double g : gradient) largest = std::max(largest, std::abs(g));
  for (size_t i = 0; i < at.size(); i += 1 + at.size() / 41) {
    const double here = at[i], h = 1e-5;
    at[i] = here + h;
    const double up = value(at);
    at[i] = here - h;
    const double down = value(at);
    at[i] = here;
    EXPECT_NEAR((up - down) / (2 * h), gradient[i], 1e-6 * std::max(1.0, largest)) << "element " << i;
  }
}

// Softmax over the whole row, no blocks.
Values plain_attention(const AttentionShape& shape, const Values& qkv) {
  Values out(shape.tokens() * shape.q_columns());
  const int64_t stride = shape.qkv_columns(), d = shape.head_dim;
  for (int sample = 0; sample < shape.batch; ++sample)
    for (int head = 0; head < shape.q_heads; ++head)
      for (int64_t i = 0; i < shape.seq; ++i) {
        const int64_t key = shape.q_columns() + head / (shape.q_heads / shape.kv_heads) * d;
        const auto at = [&](int64_t row, int64_t column) {
          return qkv[(sample * shape.seq + row) * stride + column];
        };
        Values weights(i + 1);
        double sum = 0;
        for (int64_t j = 0; j <= i; ++j) {
          for (int64_t e = 0; e < d; ++e) weights[j] += at(i, head * d + e) * at(j, key + e);
          sum += weights[j] = std::exp(weights[j] / std::sqrt(static_cast<double>(d)));
        }
        for (int64_t j = 0; j <= i; ++j)
          for (int64_t e = 0; e < d; ++e)
            out[(sample * shape.seq + i) * shape.q_columns() + head * d + e] +=
                weights[j] / sum * at(j, key + shape.kv_columns() + e);
      }
  return out;
}

// Several blocks, the last one not full; two samples; two query heads to a key head.
constexpr AttentionShape kShapes[] = {
    {2, 300, 4, 2, 6}, {1, 128, 2, 2, 4}, {1, 129, 2, 1, 4}, {3, 1, 2, 1, 4}};

TEST(Attention, InBlocksIsAttention) {
  BlasCounter counter;
  for (const AttentionShape& shape : kShapes) {
    const Values qkv = random_values(shape.tokens() * shape.qkv_columns(), 1);
    Values out = poison(shape.tokens() * shape.q_columns()), lse = poison(shape.tokens() * shape.q_heads);
    attention_forward<double, double>(counter, shape, qkv.data(), out.data(), lse.data());
    const Values plain = plain_attention(shape, qkv);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], plain[i], 1e-12) << shape.seq << ": " << i;
    // The same in float32.
    const std::vector<float> narrow(qkv.begin(), qkv.end());
    std::vector<float> out32(out.size(), NAN), lse32(lse.size(), NAN);
    attention_forward<float, float>(counter, shape, narrow.data(), out32.data(), lse32.data());
    for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out32[i], plain[i], 2e-5) << shape.seq << ": " << i;
  }
  EXPECT_GT(counter.flops, 0);
}

TEST(Attention, GradientIsThatOfCentralDifferences) {
  BlasCounter counter;
  for (const AttentionShape& shape : kShapes) {
    const Values qkv = random_values(shape.tokens() * shape.qkv_columns(), 2);
    const Values gradient = random_values(shape.tokens() * shape.q_columns(), 3);
    Values out(gradient.size()), lse(shape.tokens() * shape.q_heads), result = poison(qkv.size());
    attention_forward<double, double>(counter, shape, qkv.data(), out.data(), lse.data());
    attention_backward<double, double>(counter, shape, qkv.data(), out.data(), lse.data(), gradient.data(),
                                       result.data());
    expect_gradient(qkv, result, [&](const Values& at) { return dot(plain_attention(shape, at), gradient); });
  }
}

TEST(RmsNorm, GradientsAreThoseOfCentralDifferences) {
  const int64_t rows = 3, columns = 7;
  const Values x = random_values(rows * columns, 4), gain = random_values(columns, 5);
  const Values dy = random_values(rows * columns, 6), residual = random_values(rows * columns, 7);
  const auto value = [&](const Values& at, const Values& g) {
    Values y = poison(at.size()), rstd = poison(rows);
    rms_norm_forward(rows, columns, at.data(), g.data(), 1e-6, y.data(), rstd.data());
    return dot(y, dy) + 0.25 * dot(at, residual);
  };
  Values y(x.size()), rstd(rows), dx = poison(x.size()), dgain(columns);
  rms_norm_forward(rows, columns, x.data(), gain.data(), 1e-6, y.data(), rstd.data());
  rms_norm_backward(rows, columns, dy.data(), x.data(), gain.data(), rstd.data(), 0.25, residual.data(),
                    dx.data(), dgain.data());
  expect_gradient(x, dx, [&](const Values& at) { return value(at, gain); });
  expect_gradient(gain, dgain, [&](const Values& at) { return value(x, at); });
}

TEST(SwiGlu, GradientIsThatOfCentralDifferences) {
  const int64_t rows = 4, columns = 5;
  const Values gate_up = random_values(2 * rows * columns, 8), dy = random_values(rows * columns, 9);
  Values gradient = poison(gate_up.size());
  swiglu_backward(rows, columns, gate_up.data(), dy.data(), gradient.data());
  expect_gradient(gate_up, gradient, [&](const Values& at) {
    Values out = poison(dy.size());
    swiglu_forward(rows, columns, at.data(), out.data());
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < columns; ++i) {
        const double g = at[row * 2 * columns + i], u = at[row * 2 * columns + columns + i];
        EXPECT_NEAR(out[row * columns + i], g / (1 + std::exp(-g)) * u, 1e-14);
      }
    return dot(out, dy);
  });
}

TEST(Rotation, BackwardUndoesIt) {
  const Values cosine{std::cos(0.3), std::cos(1.1)}, sine{std::sin(0.3), std::sin(1.1)};
  const Values start = random_values(8, 10);
  Values turned = start;
  rotate(turned.data(), 2, 2, cosine.data(), sine.data(), 1.0);
  EXPECT_NEAR(turned[0], start[0] * std::cos(0.3) - start[2] * std::sin(0.3), 1e-15);
  EXPECT_NEAR(turned[2], start[2] * std::cos(0.3) + start[0] * std::sin(0.3), 1e-15);
  rotate(turned.data(), 2, 2, cosine.data(), sine.data(), -1.0);
  for (size_t i = 0; i < start.size(); ++i) EXPECT_NEAR(turned[i], start[i], 1e-15);
}

// The vocabulary on 1, 2 and 4 ranks: sums over ranks give one loss and one gradient.
TEST(CrossEntropy, OfAVocabularyInSharesIsThatOfTheWhole) {
  const int64_t rows = 3, vocab = 12;
  const Values logits = random_values(rows * vocab, 11);
  const std::vector<int32_t> targets{0, 7, 11};
  const auto whole_loss = [&](const Values& at) {
    double loss = 0;
    for (int64_t row = 0; row < rows; ++row) {
      double sum = 0;
      for (int64_t i = 0; i < vocab; ++i) sum += std::exp(at[row * vocab + i]);
      loss += 0.5 * (std::log(sum) - at[row * vocab + targets[row]]);
    }
    return loss;
  };
  for (const int64_t ranks : {1, 2, 4}) {
    const int64_t share = vocab / ranks;
    Values maximum(rows, -INFINITY), sums(2 * rows);
    std::vector<Values> shares(ranks);
    for (int64_t rank = 0; rank < ranks; ++rank)
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t i = 0; i < share; ++i) {
          shares[rank].push_back(logits[row * vocab + rank * share + i]);
          maximum[row] = std::max(maximum[row], shares[rank].back());
        }
    for (int64_t rank = 0; rank < ranks; ++rank) {
      Values own = poison(2 * rows);
      exponential_sums(rows, share, shares[rank].data(), maximum.data(), targets.data(), rank * share,
                       own.data());
      for (size_t i = 0; i < own.size(); ++i) sums[i] += own[i];
    }
    Values gradient(logits.size());
    for (int64_t rank = 0; rank < ranks; ++rank) {
      double loss = 0;
      cross_entropy(rows, share, maximum.data(), sums.data(), targets.data(), rank * share, 0.5,
                    shares[rank].data(), &loss);
      EXPECT_NEAR(loss, whole_loss(logits), 1e-12) << ranks;
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t i = 0; i < share; ++i)
          gradient[row * vocab + rank * share + i] = shares[rank][row * share + i];
    }
    expect_gradient(logits, gradient, whole_loss);
  }
}

TEST(Exponential, OfFloatsIsWithinTwoUnitsInTheLastPlace) {
  for (float x = -87; x <= 88; x += 0.00731F) {
    const double exact = std::exp(static_cast<double>(x));
    EXPECT_LE(std::abs(exponential(x) - exact), 2 * exact * 0x1p-23) << x;
  }
  EXPECT_TRUE(std::isnan(exponential(NAN)));
  EXPECT_FLOAT_EQ(exponential(-1000.0F), exponential(-87.0F));
}

}  // namespace
}  // namespace stp
