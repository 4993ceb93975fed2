// Kernels that hand every call to others: for tests that change some calls, or count them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "stp/device/kernels.h"

namespace stp::testing_support {

class ForwardingKernels : public Kernels {
 public:
  explicit ForwardingKernels(std::unique_ptr<Kernels> real) : real_(std::move(real)) {}
  [[nodiscard]] bool vision() const override { return real_->vision(); }

 protected:
  /// Before each call that is handed on: its stream, and its name, as in Kernels.
  virtual void called(Stream& stream, const char* kernel) {
    static_cast<void>(stream);
    static_cast<void>(kernel);
  }

  std::unique_ptr<Kernels> real_;

 private:
  void run_fill(Stream& s, const Tensor& t, double v) override {
    called(s, "fill");
    real_->fill(s, t, v);
  }
  void run_copy(Stream& s, const Tensor& a, const Tensor& b) override {
    called(s, "copy");
    real_->copy(s, a, b);
  }
  void run_copy_columns(Stream& s, const Tensor& a, int64_t from, const Tensor& b, int64_t to,
                        int64_t count) override {
    called(s, "copy_columns");
    real_->copy_columns(s, a, from, b, to, count);
  }
  void run_scale(Stream& s, double factor, const Tensor& a, const Tensor& b) override {
    called(s, "scale");
    real_->scale(s, factor, a, b);
  }
  void run_check_finite(Stream& s, const Tensor& t, const std::string& w) override {
    called(s, "check_finite");
    real_->check_finite(s, t, w);
  }
  void run_add_rows(Stream& s, const Tensor& a, int64_t first, const Tensor& b) override {
    called(s, "add_rows");
    real_->add_rows(s, a, first, b);
  }
  void run_gemm(Stream& s, const GemmShape& shape, double alpha, const Tensor& a, const Tensor& b,
                double beta, const Tensor& c) override {
    called(s, "gemm");
    real_->gemm(s, shape.transpose_a, shape.transpose_b, alpha, a, b, beta, c);
  }
  void run_rms_norm_forward(Stream& s, const Tensor& x, const Tensor& g, double e, const Tensor& y,
                            const Tensor& r) override {
    called(s, "rms_norm_forward");
    real_->rms_norm_forward(s, x, g, e, y, r);
  }
  void run_rms_norm_backward(Stream& s, const Tensor& dy, const Tensor& x, const Tensor& g, const Tensor& r,
                             double factor, const Tensor& residual, const Tensor& dx,
                             const Tensor& dg) override {
    called(s, "rms_norm_backward");
    real_->rms_norm_backward(s, dy, x, g, r, factor, residual, dx, dg);
  }
  void run_bias_rope_forward(Stream& s, const AttentionShape& shape, double theta, const Tensor& b,
                             const Tensor& qkv) override {
    called(s, "bias_rope_forward");
    real_->bias_rope_forward(s, shape, theta, b, qkv);
  }
  void run_rope_backward(Stream& s, const AttentionShape& shape, double theta, const Tensor& g) override {
    called(s, "rope_backward");
    real_->rope_backward(s, shape, theta, g);
  }
  void run_add_column_sums(Stream& s, const Tensor& g, const Tensor& b) override {
    called(s, "add_column_sums");
    real_->add_column_sums(s, g, b);
  }
  void run_attention_forward(Stream& s, const AttentionShape& shape, const Tensor& qkv, const Tensor& o,
                             const Tensor& l) override {
    called(s, "attention_forward");
    real_->attention_forward(s, shape, qkv, o, l);
  }
  void run_attention_backward(Stream& s, const AttentionShape& shape, const Tensor& qkv, const Tensor& o,
                              const Tensor& l, const Tensor& d, const Tensor& g) override {
    called(s, "attention_backward");
    real_->attention_backward(s, shape, qkv, o, l, d, g);
  }
  void run_attention_merge_forward(Stream& s, const AttentionShape& shape, const AttentionBlock& block,
                                   const Tensor& qkv, const Tensor& kv, const Tensor& o,
                                   const Tensor& l) override {
    called(s, "attention_merge_forward");
    real_->attention_merge_forward(s, shape, block, qkv, kv, o, l);
  }
  void run_attention_merge_backward(Stream& s, const AttentionShape& shape, const AttentionBlock& block,
                                    const Tensor& qkv, const Tensor& kv, const Tensor& o, const Tensor& l,
                                    const Tensor& d, const Tensor& g, const Tensor& kv_g) override {
    called(s, "attention_merge_backward");
    real_->attention_merge_backward(s, shape, block, qkv, kv, o, l, d, g, kv_g);
  }
  void run_swiglu_forward(Stream& s, const Tensor& g, const Tensor& o) override {
    called(s, "swiglu_forward");
    real_->swiglu_forward(s, g, o);
  }
  void run_swiglu_backward(Stream& s, const Tensor& g, const Tensor& d, const Tensor& o) override {
    called(s, "swiglu_backward");
    real_->swiglu_backward(s, g, d, o);
  }
  void run_embedding_forward(Stream& s, const Tensor& t, const Tensor& table, int64_t first,
                             const Tensor& o) override {
    called(s, "embedding_forward");
    real_->embedding_forward(s, t, table, first, o);
  }
  void run_embedding_backward(Stream& s, const Tensor& t, const Tensor& d, int64_t first,
                              const Tensor& g) override {
    called(s, "embedding_backward");
    real_->embedding_backward(s, t, d, first, g);
  }
  void run_row_maximum(Stream& s, const Tensor& l, const Tensor& m) override {
    called(s, "row_maximum");
    real_->row_maximum(s, l, m);
  }
  void run_exponential_sums(Stream& s, const Tensor& l, const Tensor& m, const Tensor& t, int64_t first,
                            const Tensor& sums) override {
    called(s, "exponential_sums");
    real_->exponential_sums(s, l, m, t, first, sums);
  }
  void run_cross_entropy(Stream& s, const Tensor& m, const Tensor& sums, const Tensor& t, int64_t first,
                         double factor, const Tensor& l, const Tensor& loss) override {
    called(s, "cross_entropy");
    real_->cross_entropy(s, m, sums, t, first, factor, l, loss);
  }
  void run_add_sum_of_squares(Stream& s, double f, const Tensor& x, const Tensor& t) override {
    called(s, "add_sum_of_squares");
    real_->add_sum_of_squares(s, f, x, t);
  }
  void run_adamw(Stream& s, const AdamW& options, double max_norm, const Tensor& total, const Tensor& g,
                 const Tensor& m1, const Tensor& m2, const Tensor& master, const Tensor& w) override {
    called(s, "adamw");
    real_->adamw(s, options, max_norm, total, g, m1, m2, master, w);
  }
  void run_layer_norm_forward(Stream& s, const Tensor& x, const Tensor& g, const Tensor& b, double e,
                              const Tensor& y, const Tensor& r) override {
    called(s, "layer_norm_forward");
    real_->layer_norm_forward(s, x, g, b, e, y, r);
  }
  void run_layer_norm_backward(Stream& s, const Tensor& dy, const Tensor& x, const Tensor& g, const Tensor& r,
                               double factor, const Tensor& residual, const Tensor& dx, const Tensor& dg,
                               const Tensor& db) override {
    called(s, "layer_norm_backward");
    real_->layer_norm_backward(s, dy, x, g, r, factor, residual, dx, dg, db);
  }
  void run_add_bias(Stream& s, double factor, const Tensor& b, const Tensor& x) override {
    called(s, "add_bias");
    real_->add_bias(s, factor, b, x);
  }
  void run_gelu_forward(Stream& s, const Tensor& x, const Tensor& o) override {
    called(s, "gelu_forward");
    real_->gelu_forward(s, x, o);
  }
  void run_gelu_backward(Stream& s, const Tensor& x, const Tensor& d, const Tensor& g) override {
    called(s, "gelu_backward");
    real_->gelu_backward(s, x, d, g);
  }
};

}  // namespace stp::testing_support
