#include "stp/cpu/cpu_kernels.h"

#include <map>
#include <mutex>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "stp/cpu/attention.h"
#include "stp/cpu/blas.h"
#include "stp/cpu/cpu_stream.h"
#include "stp/cpu/elementwise.h"
#include "stp/cpu/operand.h"

namespace stp::cpu {
namespace {

// Calls work(T{}) as a task of `stream`; T is the type in which kernels compute with x's type: float if `x`
// is bf16.
template <typename TypedWork>
void enqueue(Stream& stream, const Tensor& x, TypedWork work) {
  if (x.type == DType::f64) {
    cpu_stream(stream).enqueue([work = std::move(work)] { work(double{}); });
  } else {
    cpu_stream(stream).enqueue([work = std::move(work)] { work(float{}); });
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
  const auto table = RotaryTable<T>::of(shape.cp * shape.seq, shape.head_dim, theta);
  const int64_t half = shape.head_dim / 2, columns = shape.qkv_columns();
  for (int64_t row = 0; row < shape.tokens(); ++row, qkv += columns) {
    if (bias != nullptr)
      for (int64_t i = 0; i < columns; ++i) qkv[i] += bias[i];
    const int64_t position = position_of(shape.cp, shape.cp_index, shape.seq, row % shape.seq);
    // Query heads and key heads are adjacent.
    rotate(qkv, shape.q_heads + shape.kv_heads, half, table->cosine.data() + position * half,
           table->sine.data() + position * half, direction);
  }
}

class CpuKernels : public Kernels {
 public:
  explicit CpuKernels(BlasCounter& counter) : counter_(counter) {}

  void run_fill(Stream& stream, const Tensor& tensor, double value) override {
    enqueue(stream, tensor, [=]<typename T>(T) {
      const Out<T> elements(tensor);
      std::fill_n(static_cast<T*>(elements), tensor.elements(), static_cast<T>(value));
    });
  }

  void run_copy(Stream& stream, const Tensor& from, const Tensor& to) override {
    enqueue(stream, from, [=]<typename T>(T) {
      const In<T> source(from);
      const Out<T> target(to);
      std::copy_n(static_cast<const T*>(source), from.elements(), static_cast<T*>(target));
    });
  }

  void run_scale(Stream& stream, double factor, const Tensor& in, const Tensor& out) override {
    enqueue(stream, in, [=]<typename T>(T) { cpu::scale<T>(in.elements(), factor, In<T>(in), Out<T>(out)); });
  }

  void run_add_rows(Stream& stream, const Tensor& in, int64_t first, const Tensor& out) override {
    enqueue(stream, in, [=]<typename T>(T) {
      cpu::add<T>(in.elements(), In<T>(in), InOut<T>(out) + first * out.columns);
    });
  }

  void run_check_finite(Stream& stream, const Tensor& tensor, const std::string& what) override {
    enqueue(stream, tensor, [=]<typename T>(T) {
      const In<T> values(tensor);
      for (int64_t i = 0; i < tensor.elements(); ++i)
        if (!std::isfinite(values[i])) throw std::runtime_error(what + " is not finite");
    });
  }

  void run_gemm(Stream& stream, const GemmShape& shape, double alpha, const Tensor& a, const Tensor& b,
                double beta, const Tensor& c) override {
    enqueue(stream, a, [=, this]<typename T>(T) {
      const auto multiply = [&](T* to) {
        blas_gemm<T>(counter_, shape, alpha, {In<T>(a), a.columns}, {In<T>(b), b.columns}, beta,
                     {to, c.columns});
      };
      if (beta == 0)
        multiply(Out<T>(c));
      else
        multiply(InOut<T>(c));
    });
  }

  void run_rms_norm_forward(Stream& stream, const Tensor& x, const Tensor& gain, double epsilon,
                            const Tensor& y, const Tensor& rstd) override {
    enqueue(stream, x, [=]<typename T>(T) {
      cpu::rms_norm_forward<T>(x.rows, x.columns, In<T>(x), In<T>(gain), epsilon, Out<T>(y), data<T>(rstd));
    });
  }

  void run_rms_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& gain,
                             const Tensor& rstd, double residual_factor, const Tensor& residual,
                             const Tensor& dx, const Tensor& gain_gradient) override {
    enqueue(stream, x, [=]<typename T>(T) {
      cpu::rms_norm_backward<T>(x.rows, x.columns, In<T>(dy), In<T>(x), In<T>(gain), data<T>(rstd),
                                residual_factor, InIfAny<T>(residual), Out<T>(dx), data<T>(gain_gradient));
    });
  }

  [[nodiscard]] bool vision() const override { return true; }

  void run_layer_norm_forward(Stream& stream, const Tensor& x, const Tensor& gain, const Tensor& bias,
                              double epsilon, const Tensor& y, const Tensor& statistics) override {
    enqueue(stream, x, [=]<typename T>(T) {
      cpu::layer_norm_forward<T>(x.rows, x.columns, In<T>(x), In<T>(gain), In<T>(bias), epsilon, Out<T>(y),
                                 data<T>(statistics));
    });
  }

  void run_layer_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& gain,
                               const Tensor& statistics, double residual_factor, const Tensor& residual,
                               const Tensor& dx, const Tensor& gain_gradient,
                               const Tensor& bias_gradient) override {
    enqueue(stream, x, [=]<typename T>(T) {
      cpu::layer_norm_backward<T>(x.rows, x.columns, In<T>(dy), In<T>(x), In<T>(gain), data<T>(statistics),
                                  residual_factor, InIfAny<T>(residual), Out<T>(dx), data<T>(gain_gradient),
                                  data<T>(bias_gradient));
    });
  }

  void run_add_bias(Stream& stream, double factor, const Tensor& bias, const Tensor& x) override {
    enqueue(stream, x,
            [=]<typename T>(T) { cpu::add_bias<T>(x.rows, x.columns, factor, In<T>(bias), InOut<T>(x)); });
  }

  void run_gelu_forward(Stream& stream, const Tensor& x, const Tensor& out) override {
    enqueue(stream, x, [=]<typename T>(T) { cpu::gelu_forward<T>(x.elements(), In<T>(x), Out<T>(out)); });
  }

  void run_gelu_backward(Stream& stream, const Tensor& x, const Tensor& out_gradient,
                         const Tensor& x_gradient) override {
    enqueue(stream, x, [=]<typename T>(T) {
      cpu::gelu_backward<T>(x.elements(), In<T>(x), In<T>(out_gradient), Out<T>(x_gradient));
    });
  }

  void run_bias_rope_forward(Stream& stream, const AttentionShape& shape, double theta, const Tensor& bias,
                             const Tensor& qkv) override {
    enqueue(stream, qkv, [=]<typename T>(T) { rotate_all<T>(shape, theta, InOut<T>(qkv), In<T>(bias), 1); });
  }

  void run_rope_backward(Stream& stream, const AttentionShape& shape, double theta,
                         const Tensor& qkv_gradient) override {
    enqueue(stream, qkv_gradient,
            [=]<typename T>(T) { rotate_all<T>(shape, theta, InOut<T>(qkv_gradient), nullptr, -1); });
  }

  void run_add_column_sums(Stream& stream, const Tensor& gradient, const Tensor& bias_gradient) override {
    enqueue(stream, gradient, [=]<typename T>(T) {
      cpu::add_column_sums<T>(gradient.rows, gradient.columns, In<T>(gradient), data<T>(bias_gradient));
    });
  }

  void run_attention_forward(Stream& stream, const AttentionShape& shape, const Tensor& qkv,
                             const Tensor& out, const Tensor& log_sum_exp) override {
    enqueue(stream, qkv, [=, this]<typename T>(T) {
      cpu::attention_forward<T>(counter_, shape, In<T>(qkv), Out<T>(out), data<T>(log_sum_exp));
    });
  }

  void run_attention_backward(Stream& stream, const AttentionShape& shape, const Tensor& qkv,
                              const Tensor& out, const Tensor& log_sum_exp, const Tensor& out_gradient,
                              const Tensor& qkv_gradient) override {
    enqueue(stream, qkv, [=, this]<typename T>(T) {
      cpu::attention_backward<T>(counter_, shape, In<T>(qkv), In<T>(out), data<T>(log_sum_exp),
                                 In<T>(out_gradient), Out<T>(qkv_gradient));
    });
  }

  void run_copy_columns(Stream& stream, const Tensor& from, int64_t from_column, const Tensor& to,
                        int64_t to_column, int64_t count) override {
    enqueue(stream, from, [=]<typename T>(T) {
      const In<T> source(from);
      const InOut<T> target(to);
      for (int64_t row = 0; row < from.rows; ++row)
        std::copy_n(source + row * from.columns + from_column, count, target + row * to.columns + to_column);
    });
  }

  void run_attention_merge_forward(Stream& stream, const AttentionShape& shape, const AttentionBlock& block,
                                   const Tensor& qkv, const Tensor& kv, const Tensor& out,
                                   const Tensor& log_sum_exp) override {
    enqueue(stream, qkv, [=, this]<typename T>(T) {
      cpu::attention_merge_forward<T>(counter_, shape, block, In<T>(qkv), In<T>(kv), InOut<T>(out),
                                      data<T>(log_sum_exp));
    });
  }

  void run_attention_merge_backward(Stream& stream, const AttentionShape& shape, const AttentionBlock& block,
                                    const Tensor& qkv, const Tensor& kv, const Tensor& out,
                                    const Tensor& log_sum_exp, const Tensor& out_gradient,
                                    const Tensor& qkv_gradient, const Tensor& kv_gradient) override {
    enqueue(stream, qkv, [=, this]<typename T>(T) {
      cpu::attention_merge_backward<T>(counter_, shape, block, In<T>(qkv), In<T>(kv), In<T>(out),
                                       data<T>(log_sum_exp), In<T>(out_gradient), InOut<T>(qkv_gradient),
                                       Out<T>(kv_gradient));
    });
  }

  void run_swiglu_forward(Stream& stream, const Tensor& gate_up, const Tensor& out) override {
    enqueue(stream, out, [=]<typename T>(T) {
      cpu::swiglu_forward<T>(out.rows, out.columns, In<T>(gate_up), Out<T>(out));
    });
  }

  void run_swiglu_backward(Stream& stream, const Tensor& gate_up, const Tensor& out_gradient,
                           const Tensor& gate_up_gradient) override {
    enqueue(stream, out_gradient, [=]<typename T>(T) {
      cpu::swiglu_backward<T>(out_gradient.rows, out_gradient.columns, In<T>(gate_up), In<T>(out_gradient),
                              Out<T>(gate_up_gradient));
    });
  }

  void run_embedding_forward(Stream& stream, const Tensor& tokens, const Tensor& table, int64_t first,
                             const Tensor& out) override {
    enqueue(stream, table, [=]<typename T>(T) {
      cpu::embedding_forward<T>(out.rows, out.columns, data<int32_t>(tokens), In<T>(table), first, table.rows,
                                Out<T>(out));
    });
  }

  void run_embedding_backward(Stream& stream, const Tensor& tokens, const Tensor& out_gradient, int64_t first,
                              const Tensor& table_gradient) override {
    enqueue(stream, out_gradient, [=]<typename T>(T) {
      cpu::embedding_backward<T>(out_gradient.rows, out_gradient.columns, data<int32_t>(tokens),
                                 In<T>(out_gradient), first, table_gradient.rows, data<T>(table_gradient));
    });
  }

  void run_row_maximum(Stream& stream, const Tensor& logits, const Tensor& maximum) override {
    enqueue(stream, logits, [=]<typename T>(T) {
      cpu::row_maximum<T>(logits.rows, logits.columns, In<T>(logits), data<T>(maximum));
    });
  }

  void run_exponential_sums(Stream& stream, const Tensor& logits, const Tensor& maximum,
                            const Tensor& targets, int64_t first, const Tensor& sums) override {
    enqueue(stream, logits, [=]<typename T>(T) {
      cpu::exponential_sums<T>(logits.rows, logits.columns, In<T>(logits), data<T>(maximum),
                               data<int32_t>(targets), first, data<T>(sums));
    });
  }

  void run_cross_entropy(Stream& stream, const Tensor& maximum, const Tensor& sums, const Tensor& targets,
                         int64_t first, double factor, const Tensor& logits, const Tensor& loss) override {
    enqueue(stream, logits, [=]<typename T>(T) {
      cpu::cross_entropy<T>(logits.rows, logits.columns, data<T>(maximum), data<T>(sums),
                            data<int32_t>(targets), first, factor, InOut<T>(logits), data<T>(loss));
    });
  }

  void run_add_sum_of_squares(Stream& stream, double factor, const Tensor& x, const Tensor& total) override {
    enqueue(stream, x, [=]<typename T>(T) {
      *data<double>(total) += factor * cpu::sum_of_squares<T>(x.elements(), In<T>(x));
    });
  }

  void run_adamw(Stream& stream, const AdamW& options, double max_norm, const Tensor& total,
                 const Tensor& gradient, const Tensor& first_moment, const Tensor& second_moment,
                 const Tensor& master, const Tensor& weight) override {
    const bool rounded = address(weight) != address(master);
    enqueue(stream, gradient, [=]<typename T>(T) {
      double scale = 1;
      if (total)
        if (const double norm = std::sqrt(*data<double>(total)); norm > max_norm) scale = max_norm / norm;
      cpu::adamw(gradient.elements(), options, scale, data<T>(gradient), data<T>(first_moment),
                 data<T>(second_moment), data<T>(master));
      if (rounded) cpu::round(master.elements(), data<T>(master), data<Bfloat16>(weight));
    });
  }

 private:
  BlasCounter& counter_;
};

}  // namespace

std::unique_ptr<Kernels> make_cpu_kernels(BlasCounter& counter) {
  return std::make_unique<CpuKernels>(counter);
}

}  // namespace stp::cpu
