// Attention against plain softmax of whole rows, of whole sequences and of the ranks of a ring.
#include <cmath>

#include "support/effort.h"
#include "support/kernel_fixture.h"

namespace stp::cpu {
namespace {

// Softmax of each whole row, and its gradient by the chain rule, which reads `out` as it was stored.
struct PlainAttention {
  Values out, log_sum_exp, gradient;

  PlainAttention(const AttentionShape& shape, const Values& qkv, const Values& dy, DType type)
      : out(shape.tokens() * shape.q_columns()),
        log_sum_exp(shape.tokens() * shape.q_heads),
        gradient(qkv.size()) {
    const int64_t d = shape.head_dim, stride = shape.qkv_columns();
    const double scale = 1 / std::sqrt(static_cast<double>(d));
    for (int64_t row = 0; row < shape.tokens(); ++row)
      for (int64_t head = 0; head < shape.q_heads; ++head) {
        const int64_t first = row - row % shape.seq, q = row * stride + head * d;
        const int64_t group = head / (shape.q_heads / shape.kv_heads);
        const auto k = [&](int64_t j) { return (first + j) * stride + shape.q_columns() + group * d; };
        const auto v = [&](int64_t j) { return k(j) + shape.kv_columns(); };
        double* o = &out[row * shape.q_columns() + head * d];
        const double* g = &dy[row * shape.q_columns() + head * d];
        Values p(shape.causal ? row % shape.seq + 1 : shape.seq), dp(p.size());
        double sum = 0, mean = 0;
        for (size_t j = 0; j < p.size(); ++j) {
          for (int64_t e = 0; e < d; ++e) p[j] += scale * qkv[q + e] * qkv[k(j) + e];
          sum += p[j] = std::exp(p[j]);
        }
        log_sum_exp[row * shape.q_heads + head] = std::log(sum);
        for (size_t j = 0; j < p.size(); ++j) {
          p[j] /= sum;
          for (int64_t e = 0; e < d; ++e) {
            o[e] += p[j] * qkv[v(j) + e];
            dp[j] += g[e] * qkv[v(j) + e];
            gradient[v(j) + e] += p[j] * g[e];
          }
        }
        for (int64_t e = 0; e < d; ++e) mean += rounded(o[e], type) * g[e];
        for (size_t j = 0; j < p.size(); ++j)
          for (int64_t e = 0; e < d; ++e) {
            gradient[q + e] += p[j] * (dp[j] - mean) * scale * qkv[k(j) + e];
            gradient[k(j) + e] += p[j] * (dp[j] - mean) * scale * qkv[q + e];
          }
      }
  }
};

// The rows of a ring's rank, of all samples.
std::vector<int64_t> rows_of_rank(const AttentionShape& whole, int cp, int rank) {
  std::vector<int64_t> rows;
  const int piece = whole.seq / (2 * cp);
  for (int sample = 0; sample < whole.batch; ++sample)
    for (const int first : {rank * piece, (2 * cp - 1 - rank) * piece})
      for (int i = 0; i < piece; ++i) rows.push_back(int64_t{sample} * whole.seq + first + i);
  return rows;
}
Values taken(const Values& matrix, const std::vector<int64_t>& rows, int64_t columns) {
  Values some;
  for (const int64_t row : rows)
    some.insert(some.end(), matrix.begin() + row * columns, matrix.begin() + (row + 1) * columns);
  return some;
}

// A whole sequence, its plain attention, and the gradients of keys and values that the ranks of a ring add
// up.
struct Ring {
  AttentionShape whole;
  Values qkv, dy, kv, kv_gradient;
  PlainAttention plain;

  Ring(const AttentionShape& shape, Values rows, Values gradient, DType type)
      : whole(shape),
        qkv(std::move(rows)),
        dy(std::move(gradient)),
        kv_gradient(shape.tokens() * d_kv()),
        plain(shape, qkv, dy, type) {
    for (int64_t row = 0; row < whole.tokens(); ++row)
      kv.insert(kv.end(), qkv.begin() + row * d_qkv() + d_q(), qkv.begin() + (row + 1) * d_qkv());
  }
  [[nodiscard]] int64_t d_q() const { return whole.q_columns(); }
  [[nodiscard]] int64_t d_kv() const { return 2 * whole.kv_columns(); }
  [[nodiscard]] int64_t d_qkv() const { return whole.qkv_columns(); }
  [[nodiscard]] AttentionShape of_rank(int cp, int rank) const {
    AttentionShape shape = whole;
    shape.seq /= cp;
    shape.cp = cp;
    shape.cp_index = rank;
    return shape;
  }
  // Adds columns [first, first + d_kv) of `part`, whose rows stand for `rows` of the sequence.
  void add(const std::vector<int64_t>& rows, const Values& part, int64_t stride, int64_t first) {
    for (size_t row = 0; row < rows.size(); ++row)
      for (int64_t i = 0; i < d_kv(); ++i)
        kv_gradient[rows[row] * d_kv() + i] += part[row * stride + first + i];
  }
};

class CpuAttention : public KernelFixture {
 protected:
  // Of sums that were rounded several times.
  [[nodiscard]] double tolerance() const {
    return type_ == DType::f64 ? 1e-11 : type_ == DType::f32 ? 2e-4 : 0.1;
  }
  // Forward and backward of a rank, and the rows that they should give.
  void run_rank(Ring& ring, int cp, int rank) {
    const AttentionShape shape = ring.of_rank(cp, rank);
    const int64_t tokens = shape.tokens(), d_q = ring.d_q(), d_kv = ring.d_kv(), d_qkv = ring.d_qkv();
    const auto own = rows_of_rank(ring.whole, cp, rank);
    const auto other = [&](int step) { return (rank - step + cp) % cp; };
    const auto put_rows = [&](const Values& matrix, const std::vector<int64_t>& rows, int64_t columns) {
      return put(tokens, columns, taken(matrix, rows, columns));
    };
    const Tensor qkv = put_rows(ring.qkv, own, d_qkv), dy = put_rows(ring.dy, own, d_q),
                 out = fresh(tokens, d_q), log_sum_exp = fresh(tokens, shape.q_heads, sums_),
                 gradient = fresh(tokens, d_qkv);
    issue(kernel::AttentionForward{shape, qkv, out, log_sum_exp});
    for (int step = 1; step < cp; ++step) {
      const Tensor keys = put_rows(ring.kv, rows_of_rank(ring.whole, cp, other(step)), d_kv);
      issue(
          kernel::AttentionForward{shape, qkv, out, log_sum_exp, attention_block(shape, other(step)), keys});
    }
    // bf16 outputs are rounded at every step.
    expect_near(out, taken(ring.plain.out, own, d_q), type_ == DType::bf16 ? 1000 : 1);
    expect_near(log_sum_exp, taken(ring.plain.log_sum_exp, own, shape.q_heads));

    issue(kernel::AttentionBackward{shape, qkv, out, log_sum_exp, dy, gradient});
    ring.add(own, get(gradient), d_qkv, d_q);
    for (int step = 1; step < cp; ++step) {
      const auto theirs = rows_of_rank(ring.whole, cp, other(step));
      const Tensor keys = put_rows(ring.kv, theirs, d_kv), of_keys = fresh(tokens, d_kv);
      issue(kernel::AttentionBackward{shape, qkv, out, log_sum_exp, dy, gradient,
                                      attention_block(shape, other(step)), keys, of_keys});
      ring.add(theirs, get(of_keys), d_kv, 0);
    }
    const Values all = get(gradient), exact = taken(ring.plain.gradient, own, d_qkv);
    for (int64_t row = 0; row < tokens; ++row)
      for (int64_t i = 0; i < d_q; ++i)
        ASSERT_NEAR(all[row * d_qkv + i], exact[row * d_qkv + i], tolerance()) << row << ", " << i;
  }
  // The rotation of a rank's rows, by their positions in the whole sequence.
  void rotate_rank(const Ring& ring, const Values& rotated, int cp, int rank) {
    const AttentionShape shape = ring.of_rank(cp, rank);
    const auto own = rows_of_rank(ring.whole, cp, rank);
    const Tensor qkv = put(shape.tokens(), ring.d_qkv(), taken(ring.qkv, own, ring.d_qkv()));
    issue(kernel::RopeBackward{shape, 1e4, qkv});
    expect_near(qkv, taken(rotated, own, ring.d_qkv()));
  }
};
INSTANTIATE_TEST_SUITE_P(, CpuAttention, kTypes, type_name);

TEST_P(CpuAttention, OfWholeSequences) {
  for (const AttentionShape& shape :
       {AttentionShape{.batch = 2, .seq = 37, .q_heads = 6, .kv_heads = 2, .head_dim = 10},
        AttentionShape{.batch = 2, .seq = 259, .q_heads = 2, .kv_heads = 1, .head_dim = 5},
        AttentionShape{.batch = 1, .seq = 128, .q_heads = 1, .kv_heads = 1, .head_dim = 8},
        AttentionShape{.batch = 1, .seq = 1, .q_heads = 3, .kv_heads = 3, .head_dim = 1},
        AttentionShape{.batch = 2, .seq = 9, .q_heads = 2, .kv_heads = 2, .head_dim = 4, .causal = false},
        AttentionShape{
            .batch = 2, .seq = 259, .q_heads = 2, .kv_heads = 1, .head_dim = 5, .causal = false}}) {
    const Values qkv = random(shape.tokens() * shape.qkv_columns()),
                 dy = random(shape.tokens() * shape.q_columns());
    const PlainAttention plain(shape, qkv, dy, type_);
    const Tensor tqkv = put(shape.tokens(), shape.qkv_columns(), qkv),
                 out = fresh(shape.tokens(), shape.q_columns()),
                 log_sum_exp = fresh(shape.tokens(), shape.q_heads, sums_),
                 gradient = fresh(shape.tokens(), shape.qkv_columns());
    issue(kernel::AttentionForward{shape, tqkv, out, log_sum_exp});
    issue(kernel::AttentionBackward{shape, tqkv, out, log_sum_exp, put(shape.tokens(), shape.q_columns(), dy),
                                    gradient});
    expect_near(out, plain.out);
    expect_near(log_sum_exp, plain.log_sum_exp);
    expect_near(gradient, plain.gradient, 10);
  }
}

// Every rank of a ring in turn: its rows of the plain attention, rotated by their own positions.
TEST_P(CpuAttention, InARing) {
  for (const int cp : {2, 3, 4})
    for (const int piece : {1, 3, 67}) {
      if (kStride > 1 && cp > 2 && piece > 3) continue;
      const AttentionShape whole{
          .batch = 2, .seq = 2 * cp * piece, .q_heads = 4, .kv_heads = 2, .head_dim = 4};
      Ring ring(whole, random(whole.tokens() * whole.qkv_columns()),
                random(whole.tokens() * whole.q_columns()), type_);
      const Tensor rotated = put(whole.tokens(), ring.d_qkv(), ring.qkv);
      issue(kernel::RopeBackward{whole, 1e4, rotated});
      for (int rank = 0; rank < cp; ++rank) {
        SCOPED_TRACE("rank " + std::to_string(rank) + " of " + std::to_string(cp) + ", pieces of " +
                     std::to_string(piece));
        run_rank(ring, cp, rank);
        rotate_rank(ring, get(rotated), cp, rank);
      }
      for (int64_t row = 0; row < whole.tokens(); ++row)
        for (int64_t i = 0; i < ring.d_kv(); ++i)
          ASSERT_NEAR(ring.kv_gradient[row * ring.d_kv() + i],
                      ring.plain.gradient[row * ring.d_qkv() + ring.d_q() + i], tolerance());
    }
}

}  // namespace
}  // namespace stp::cpu
