#include "stp/cpu/cpu_kernels.h"

#include <map>
#include <mutex>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "stp/cpu/attention.h"
#include "stp/cpu/blas.h"
#include "stp/cpu/cpu_memory.h"
#include "stp/cpu/cpu_stream.h"
#include "stp/cpu/elementwise.h"

namespace stp {
namespace {

std::string shape_text(const Tensor& tensor) {
  return std::to_string(tensor.rows) + " x " + std::to_string(tensor.columns) + " " + to_string(tensor.type);
}

// Refuses a tensor that is not `rows` × `columns` of `type`.
void expect(const char* kernel, const char* name, const Tensor& tensor, int64_t rows, int64_t columns,
            DType type) {
  if (tensor && tensor.rows == rows && tensor.columns == columns && tensor.type == type) return;
  throw std::logic_error(std::string(kernel) + ": " + name + " is " +
                         (tensor ? shape_text(tensor) : "empty") + ", not " +
                         shape_text({nullptr, rows, columns, type}));
}

// What a shape must be by itself: query heads share key heads evenly, and halves of a head are rotated.
void expect_heads(const char* kernel, const AttentionShape& shape, bool rotated) {
  if (shape.batch >= 0 && shape.seq >= 0 && shape.q_heads > 0 && shape.kv_heads > 0 && shape.head_dim > 0 &&
      shape.q_heads % shape.kv_heads == 0 && (!rotated || shape.head_dim % 2 == 0))
    return;
  throw std::logic_error(std::string(kernel) + ": no attention of " + std::to_string(shape.batch) + " x " +
                         std::to_string(shape.seq) + " tokens with " + std::to_string(shape.q_heads) +
                         " query heads and " + std::to_string(shape.kv_heads) + " key heads of " +
                         std::to_string(shape.head_dim) + (rotated ? ", rotated" : ""));
}

// Calls work(T{}) as a task of `stream`, T being the element type of `x`, the tensor that the kernel's others
// were held against.
template <typename TypedWork>
void enqueue(const char* kernel, Stream& stream, const Tensor& x, TypedWork work) {
  if (!x) throw std::logic_error(std::string(kernel) + ": a tensor is empty");
  if (x.type == DType::f32) {
    cpu_stream(stream).enqueue([work = std::move(work)] { work(float{}); });
  } else if (x.type == DType::f64) {
    cpu_stream(stream).enqueue([work = std::move(work)] { work(double{}); });
  } else {
    throw std::logic_error(std::string(kernel) + ": no kernel for " + to_string(x.type));
  }
}

// Cosines and sines of the rotary angles: seq × half each.
template <typename T>
struct RotaryTable {
  std::vector<T> cosine, sine;

  static std::shared_ptr<const RotaryTable> of(int seq, int head_dim, double theta) {
    static std::mutex mutex;
    static std::map<std::tuple<int, int, double>, std::shared_ptr<const RotaryTable>> tables;
    const std::lock_guard lock(mutex);
    auto& table = tables[{seq, head_dim, theta}];
    if (!table) table = make(seq, head_dim, theta);
    return table;
  }

 private:
  static std::shared_ptr<const RotaryTable> make(int seq, int head_dim, double theta) {
    auto table = std::make_shared<RotaryTable>();
    for (int position = 0; position < seq; ++position) {
      for (int i = 0; i < head_dim / 2; ++i) {
        const double angle = position * std::pow(theta, -2.0 * i / head_dim);
        table->cosine.push_back(static_cast<T>(std::cos(angle)));
        table->sine.push_back(static_cast<T>(std::sin(angle)));
      }
    }
    return table;
  }
};

template <typename T>
void rotate_all(const AttentionShape& shape, double theta, T* qkv, const T* bias, T direction) {
  const auto table = RotaryTable<T>::of(shape.seq, shape.head_dim, theta);
  const int64_t half = shape.head_dim / 2, columns = shape.qkv_columns();
  for (int64_t row = 0; row < shape.tokens(); ++row, qkv += columns) {
    if (bias != nullptr)
      for (int64_t i = 0; i < columns; ++i) qkv[i] += bias[i];
    const int64_t position = row % shape.seq;
    // Query heads and key heads lie side by side.
    rotate(qkv, shape.q_heads + shape.kv_heads, half, table->cosine.data() + position * half,
           table->sine.data() + position * half, direction);
  }
}

class CpuKernels : public Kernels {
 public:
  explicit CpuKernels(BlasCounter& counter) : counter_(counter) {}

  void fill(Stream& stream, const Tensor& tensor, double value) override {
    enqueue("fill", stream, tensor, [=](auto zero) {
      using T = decltype(zero);
      std::fill_n(data<T>(tensor), tensor.elements(), static_cast<T>(value));
    });
  }

  void copy(Stream& stream, const Tensor& from, const Tensor& to) override {
    expect("copy", "the target", to, from.rows, from.columns, from.type);
    enqueue("copy", stream, from, [=](auto zero) {
      using T = decltype(zero);
      std::copy_n(data<T>(from), from.elements(), data<T>(to));
    });
  }

  void scale(Stream& stream, double factor, const Tensor& in, const Tensor& out) override {
    expect("scale", "out", out, in.rows, in.columns, in.type);
    enqueue("scale", stream, in, [=](auto zero) {
      using T = decltype(zero);
      const T *from = data<T>(in), f = static_cast<T>(factor);
      T* to = data<T>(out);
      for (int64_t i = 0; i < in.elements(); ++i) to[i] = f * from[i];
    });
  }

  void check_finite(Stream& stream, const Tensor& tensor, const std::string& what) override {
    enqueue("check_finite", stream, tensor, [=](auto zero) {
      using T = decltype(zero);
      const T* values = data<T>(tensor);
      for (int64_t i = 0; i < tensor.elements(); ++i)
        if (!std::isfinite(values[i])) throw std::runtime_error(what + " is not finite");
    });
  }

  void gemm(Stream& stream, bool transpose_a, bool transpose_b, double alpha, const Tensor& a,
            const Tensor& b, double beta, const Tensor& c) override {
    const int64_t m = transpose_a ? a.columns : a.rows, k = transpose_a ? a.rows : a.columns;
    const int64_t n = transpose_b ? b.rows : b.columns;
    expect("gemm", "b", b, transpose_b ? n : k, transpose_b ? k : n, a.type);
    expect("gemm", "c", c, m, n, a.type);
    enqueue("gemm", stream, a, [=, this](auto zero) {
      using T = decltype(zero);
      blas_gemm<T>(counter_, transpose_a, transpose_b, m, n, k, alpha, {data<T>(a), a.columns},
                   {data<T>(b), b.columns}, beta, {data<T>(c), c.columns});
    });
  }

  void rms_norm_forward(Stream& stream, const Tensor& x, const Tensor& gain, double epsilon, const Tensor& y,
                        const Tensor& rstd) override {
    expect("rms_norm_forward", "gain", gain, 1, x.columns, x.type);
    expect("rms_norm_forward", "y", y, x.rows, x.columns, x.type);
    expect("rms_norm_forward", "rstd", rstd, x.rows, 1, statistics_type(x.type));
    enqueue("rms_norm_forward", stream, x, [=](auto zero) {
      using T = decltype(zero);
      stp::rms_norm_forward(x.rows, x.columns, data<T>(x), data<T>(gain), epsilon, data<T>(y), data<T>(rstd));
    });
  }

  void rms_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& gain,
                         const Tensor& rstd, double residual_factor, const Tensor& residual, const Tensor& dx,
                         const Tensor& gain_gradient) override {
    expect("rms_norm_backward", "dy", dy, x.rows, x.columns, x.type);
    expect("rms_norm_backward", "gain", gain, 1, x.columns, x.type);
    expect("rms_norm_backward", "rstd", rstd, x.rows, 1, statistics_type(x.type));
    expect("rms_norm_backward", "dx", dx, x.rows, x.columns, x.type);
    expect("rms_norm_backward", "the gain's gradient", gain_gradient, 1, x.columns, x.type);
    if (residual) expect("rms_norm_backward", "residual", residual, x.rows, x.columns, x.type);
    enqueue("rms_norm_backward", stream, x, [=](auto zero) {
      using T = decltype(zero);
      stp::rms_norm_backward(x.rows, x.columns, data<T>(dy), data<T>(x), data<T>(gain), data<T>(rstd),
                             residual_factor, residual ? data<T>(residual) : nullptr, data<T>(dx),
                             data<T>(gain_gradient));
    });
  }

  void bias_rope_forward(Stream& stream, const AttentionShape& shape, double theta, const Tensor& bias,
                         const Tensor& qkv) override {
    expect_heads("bias_rope_forward", shape, true);
    expect("bias_rope_forward", "bias", bias, 1, shape.qkv_columns(), qkv.type);
    expect("bias_rope_forward", "qkv", qkv, shape.tokens(), shape.qkv_columns(), qkv.type);
    enqueue("bias_rope_forward", stream, qkv, [=](auto zero) {
      using T = decltype(zero);
      rotate_all<T>(shape, theta, data<T>(qkv), data<T>(bias), 1);
    });
  }

  void rope_backward(Stream& stream, const AttentionShape& shape, double theta,
                     const Tensor& qkv_gradient) override {
    expect_heads("rope_backward", shape, true);
    expect("rope_backward", "the gradient", qkv_gradient, shape.tokens(), shape.qkv_columns(),
           qkv_gradient.type);
    enqueue("rope_backward", stream, qkv_gradient, [=](auto zero) {
      using T = decltype(zero);
      rotate_all<T>(shape, theta, data<T>(qkv_gradient), nullptr, -1);
    });
  }

  void add_column_sums(Stream& stream, const Tensor& gradient, const Tensor& bias_gradient) override {
    expect("add_column_sums", "the sums", bias_gradient, 1, gradient.columns, gradient.type);
    enqueue("add_column_sums", stream, gradient, [=](auto zero) {
      using T = decltype(zero);
      const T* row = data<T>(gradient);
      T* sums = data<T>(bias_gradient);
      for (int64_t i = 0; i < gradient.rows; ++i, row += gradient.columns)
        for (int64_t j = 0; j < gradient.columns; ++j) sums[j] += row[j];
    });
  }

  void attention_forward(Stream& stream, const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                         const Tensor& log_sum_exp) override {
    expect_heads("attention_forward", shape, false);
    expect("attention_forward", "qkv", qkv, shape.tokens(), shape.qkv_columns(), qkv.type);
    expect("attention_forward", "out", out, shape.tokens(), shape.q_columns(), qkv.type);
    expect("attention_forward", "the log-sum-exp", log_sum_exp, shape.tokens(), shape.q_heads,
           statistics_type(qkv.type));
    enqueue("attention_forward", stream, qkv, [=, this](auto zero) {
      using T = decltype(zero);
      stp::attention_forward(counter_, shape, data<T>(qkv), data<T>(out), data<T>(log_sum_exp));
    });
  }

  void attention_backward(Stream& stream, const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                          const Tensor& log_sum_exp, const Tensor& out_gradient,
                          const Tensor& qkv_gradient) override {
    expect_heads("attention_backward", shape, false);
    expect("attention_backward", "qkv", qkv, shape.tokens(), shape.qkv_columns(), qkv.type);
    expect("attention_backward", "out", out, shape.tokens(), shape.q_columns(), qkv.type);
    expect("attention_backward", "the log-sum-exp", log_sum_exp, shape.tokens(), shape.q_heads,
           statistics_type(qkv.type));
    expect("attention_backward", "out's gradient", out_gradient, shape.tokens(), shape.q_columns(), qkv.type);
    expect("attention_backward", "qkv's gradient", qkv_gradient, shape.tokens(), shape.qkv_columns(),
           qkv.type);
    enqueue("attention_backward", stream, qkv, [=, this](auto zero) {
      using T = decltype(zero);
      const T *in = data<T>(qkv), *o = data<T>(out), *statistics = data<T>(log_sum_exp);
      const T* gradient = data<T>(out_gradient);
      stp::attention_backward(counter_, shape, in, o, statistics, gradient, data<T>(qkv_gradient));
    });
  }

  void swiglu_forward(Stream& stream, const Tensor& gate_up, const Tensor& out) override {
    expect("swiglu_forward", "gate and up", gate_up, out.rows, 2 * out.columns, out.type);
    enqueue("swiglu_forward", stream, out, [=](auto zero) {
      using T = decltype(zero);
      stp::swiglu_forward(out.rows, out.columns, data<T>(gate_up), data<T>(out));
    });
  }

  void swiglu_backward(Stream& stream, const Tensor& gate_up, const Tensor& out_gradient,
                       const Tensor& gate_up_gradient) override {
    const Tensor& g = out_gradient;
    expect("swiglu_backward", "gate and up", gate_up, g.rows, 2 * g.columns, g.type);
    expect("swiglu_backward", "their gradient", gate_up_gradient, g.rows, 2 * g.columns, g.type);
    enqueue("swiglu_backward", stream, g, [=](auto zero) {
      using T = decltype(zero);
      stp::swiglu_backward(out_gradient.rows, out_gradient.columns, data<T>(gate_up), data<T>(out_gradient),
                           data<T>(gate_up_gradient));
    });
  }

  void embedding_forward(Stream& stream, const Tensor& tokens, const Tensor& table, int64_t first,
                         const Tensor& out) override {
    expect("embedding_forward", "tokens", tokens, out.rows, 1, DType::i32);
    expect("embedding_forward", "out", out, out.rows, table.columns, table.type);
    enqueue("embedding_forward", stream, table, [=](auto zero) {
      using T = decltype(zero);
      const int32_t* token = data<int32_t>(tokens);
      const T* rows = data<T>(table);
      T* to = data<T>(out);
      for (int64_t i = 0; i < out.rows; ++i, to += out.columns) {
        const int64_t row = token[i] - first;
        if (row >= 0 && row < table.rows)
          std::copy_n(rows + row * table.columns, table.columns, to);
        else
          std::fill_n(to, out.columns, T{0});
      }
    });
  }

  void embedding_backward(Stream& stream, const Tensor& tokens, const Tensor& out_gradient, int64_t first,
                          const Tensor& table_gradient) override {
    expect("embedding_backward", "tokens", tokens, out_gradient.rows, 1, DType::i32);
    expect("embedding_backward", "the table's gradient", table_gradient, table_gradient.rows,
           out_gradient.columns, out_gradient.type);
    enqueue("embedding_backward", stream, out_gradient, [=](auto zero) {
      using T = decltype(zero);
      const int32_t* token = data<int32_t>(tokens);
      const T* from = data<T>(out_gradient);
      T* rows = data<T>(table_gradient);
      for (int64_t i = 0; i < out_gradient.rows; ++i, from += out_gradient.columns) {
        const int64_t row = token[i] - first;
        if (row < 0 || row >= table_gradient.rows) continue;
        T* to = rows + row * table_gradient.columns;
        for (int64_t j = 0; j < out_gradient.columns; ++j) to[j] += from[j];
      }
    });
  }

  void row_maximum(Stream& stream, const Tensor& logits, const Tensor& maximum) override {
    if (logits.columns < 1) throw std::logic_error("row_maximum: logits are " + shape_text(logits));
    expect("row_maximum", "maximum", maximum, logits.rows, 1, statistics_type(logits.type));
    enqueue("row_maximum", stream, logits, [=](auto zero) {
      using T = decltype(zero);
      const T* row = data<T>(logits);
      T* to = data<T>(maximum);
      for (int64_t i = 0; i < logits.rows; ++i, row += logits.columns)
        to[i] = largest_of(logits.columns, row);
    });
  }

  void exponential_sums(Stream& stream, const Tensor& logits, const Tensor& maximum, const Tensor& targets,
                        int64_t first, const Tensor& sums) override {
    expect("exponential_sums", "maximum", maximum, logits.rows, 1, statistics_type(logits.type));
    expect("exponential_sums", "targets", targets, logits.rows, 1, DType::i32);
    expect("exponential_sums", "sums", sums, logits.rows, 2, statistics_type(logits.type));
    enqueue("exponential_sums", stream, logits, [=](auto zero) {
      using T = decltype(zero);
      stp::exponential_sums(logits.rows, logits.columns, data<T>(logits), data<T>(maximum),
                            data<int32_t>(targets), first, data<T>(sums));
    });
  }

  void cross_entropy(Stream& stream, const Tensor& maximum, const Tensor& sums, const Tensor& targets,
                     int64_t first, double factor, const Tensor& logits, const Tensor& loss) override {
    expect("cross_entropy", "maximum", maximum, logits.rows, 1, statistics_type(logits.type));
    expect("cross_entropy", "sums", sums, logits.rows, 2, statistics_type(logits.type));
    expect("cross_entropy", "targets", targets, logits.rows, 1, DType::i32);
    expect("cross_entropy", "loss", loss, 1, 1, statistics_type(logits.type));
    enqueue("cross_entropy", stream, logits, [=](auto zero) {
      using T = decltype(zero);
      stp::cross_entropy(logits.rows, logits.columns, data<T>(maximum), data<T>(sums), data<int32_t>(targets),
                         first, factor, data<T>(logits), data<T>(loss));
    });
  }

  void add_sum_of_squares(Stream& stream, double factor, const Tensor& x, const Tensor& total) override {
    expect("add_sum_of_squares", "total", total, 1, 1, DType::f64);
    enqueue("add_sum_of_squares", stream, x, [=](auto zero) {
      using T = decltype(zero);
      const T* values = data<T>(x);
      *data<double>(total) += factor * sum_of(x.elements(), [&](int64_t i) {
                                return static_cast<double>(values[i]) * static_cast<double>(values[i]);
                              });
    });
  }

  void adamw(Stream& stream, const AdamW& options, double max_norm, const Tensor& total,
             const Tensor& gradient, const Tensor& first_moment, const Tensor& second_moment,
             const Tensor& master, const Tensor& weight) override {
    const Tensor& g = gradient;
    expect("adamw", "the first moment", first_moment, g.rows, g.columns, g.type);
    expect("adamw", "the second moment", second_moment, g.rows, g.columns, g.type);
    expect("adamw", "master", master, g.rows, g.columns, g.type);
    if (total) expect("adamw", "total", total, 1, 1, DType::f64);
    if (weight.memory != master.memory) throw std::logic_error("adamw: on CPU the weight is its own master");
    enqueue("adamw", stream, g, [=](auto zero) {
      using T = decltype(zero);
      double scale = 1;
      if (total)
        if (const double norm = std::sqrt(*data<double>(total)); norm > max_norm) scale = max_norm / norm;
      stp::adamw(gradient.elements(), options, scale, data<T>(gradient), data<T>(first_moment),
                 data<T>(second_moment), data<T>(master));
    });
  }

 private:
  BlasCounter& counter_;
};

}  // namespace

std::unique_ptr<Kernels> make_cpu_kernels(BlasCounter& counter) {
  return std::make_unique<CpuKernels>(counter);
}

}  // namespace stp
