// A backend with a bug: it hands everything to the CPU backend but for the calls that a mutation changes. The
// executor is the real one; what it asks for goes wrong as a seeded bug would make it go wrong.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stp/cpu/cpu_backend.h"
#include "stp/cpu/cpu_memory.h"
#include "stp/cpu/cpu_stream.h"
#include "stp/device/kernels.h"

namespace stp::testing_support {

/// Which calls go wrong. Unset: as they should.
struct Mutation {
  std::string dropped_group;               // whose all-reduces do nothing
  int dropped_all_reduce = -1;             // or the n-th of group "tp" alone
  bool keep_saved = false;                 // one more tensor a norm is kept
  std::function<double(double)> scale;     // the residual's share, forward
  std::function<double(double)> residual;  // and backward
  int lost_weight_gradient = -1;           // the n-th product that adds to a gradient is left out
  bool overwrite_gradients = false;        // they start anew each microbatch
  bool no_bias_gradient = false;
  bool no_rope_backward = false;
  std::function<int64_t(int64_t)> first_entry;  // of this rank's share of the vocabulary
  int step_offset = 0;                          // of the optimizer's bias correction
  bool early_free = false;                      // the norm's output is poisoned before W reads it
  bool causal_leak = false;                     // the shape's sequences run together
  // Of bf16:
  bool narrow_gradients = false;  // sums over microbatches are rounded as they grow
  bool narrow_masters = false;    // a step starts from rounded weights
  bool stale_weights = false;     // the passes do not see what the optimizer did
};

class MutatedKernels : public Kernels {
 public:
  MutatedKernels(Kernels& real, Device& device, const Mutation& mutation)
      : real_(real), device_(device), mutation_(mutation) {}

  void fill(Stream& s, const Tensor& t, double v) override { real_.fill(s, t, v); }
  void copy(Stream& s, const Tensor& a, const Tensor& b) override { real_.copy(s, a, b); }
  void scale(Stream& s, double factor, const Tensor& a, const Tensor& b) override {
    real_.scale(s, mutation_.scale ? mutation_.scale(factor) : factor, a, b);
  }
  void check_finite(Stream& s, const Tensor& t, const std::string& w) override {
    real_.check_finite(s, t, w);
  }
  void gemm(Stream& s, bool ta, bool tb, double alpha, const Tensor& a, const Tensor& b, double beta,
            const Tensor& c) override {
    const bool weight_gradient = ta && beta == 1;
    if (weight_gradient && weight_gradients_++ == mutation_.lost_weight_gradient) return;
    if (weight_gradient && mutation_.overwrite_gradients) beta = 0;
    if (weight_gradient && mutation_.early_free) {
      Tensor other = device_.allocate(s, MemoryKind::working, b.type, b.rows, b.columns);
      real_.fill(s, other, 0.5);
      real_.gemm(s, ta, tb, alpha, a, other, beta, c);
      return device_.release(s, other);
    }
    real_.gemm(s, ta, tb, alpha, a, b, beta, c);
    if (weight_gradient && mutation_.narrow_gradients) round_to_bf16(s, c);
  }
  void rms_norm_forward(Stream& s, const Tensor& x, const Tensor& g, double e, const Tensor& y,
                        const Tensor& r) override {
    real_.rms_norm_forward(s, x, g, e, y, r);
    if (mutation_.keep_saved) kept_.push_back(device_.allocate(s, MemoryKind::saved, x.type, x.rows, 1));
  }
  void rms_norm_backward(Stream& s, const Tensor& dy, const Tensor& x, const Tensor& g, const Tensor& r,
                         double factor, const Tensor& residual, const Tensor& dx, const Tensor& dg) override {
    real_.rms_norm_backward(s, dy, x, g, r, mutation_.residual ? mutation_.residual(factor) : factor,
                            residual, dx, dg);
  }
  void bias_rope_forward(Stream& s, const AttentionShape& shape, double theta, const Tensor& b,
                         const Tensor& qkv) override {
    real_.bias_rope_forward(s, shape, theta, b, qkv);
  }
  void rope_backward(Stream& s, const AttentionShape& shape, double theta, const Tensor& g) override {
    if (!mutation_.no_rope_backward) real_.rope_backward(s, shape, theta, g);
  }
  void add_column_sums(Stream& s, const Tensor& g, const Tensor& b) override {
    if (!mutation_.no_bias_gradient) real_.add_column_sums(s, g, b);
  }
  void attention_forward(Stream& s, const AttentionShape& shape, const Tensor& qkv, const Tensor& o,
                         const Tensor& l) override {
    real_.attention_forward(s, mutated(shape), qkv, o, l);
  }
  void attention_backward(Stream& s, const AttentionShape& shape, const Tensor& qkv, const Tensor& o,
                          const Tensor& l, const Tensor& d, const Tensor& g) override {
    real_.attention_backward(s, mutated(shape), qkv, o, l, d, g);
  }
  void swiglu_forward(Stream& s, const Tensor& g, const Tensor& o) override { real_.swiglu_forward(s, g, o); }
  void swiglu_backward(Stream& s, const Tensor& g, const Tensor& d, const Tensor& o) override {
    real_.swiglu_backward(s, g, d, o);
  }
  void embedding_forward(Stream& s, const Tensor& t, const Tensor& table, int64_t first,
                         const Tensor& o) override {
    real_.embedding_forward(s, t, table, mutated(first), o);
  }
  void embedding_backward(Stream& s, const Tensor& t, const Tensor& d, int64_t first,
                          const Tensor& g) override {
    real_.embedding_backward(s, t, d, mutated(first), g);
  }
  void row_maximum(Stream& s, const Tensor& l, const Tensor& m) override { real_.row_maximum(s, l, m); }
  void exponential_sums(Stream& s, const Tensor& l, const Tensor& m, const Tensor& t, int64_t first,
                        const Tensor& sums) override {
    real_.exponential_sums(s, l, m, t, first, sums);
  }
  void cross_entropy(Stream& s, const Tensor& m, const Tensor& sums, const Tensor& t, int64_t first,
                     double factor, const Tensor& l, const Tensor& loss) override {
    real_.cross_entropy(s, m, sums, t, first, factor, l, loss);
  }
  void add_sum_of_squares(Stream& s, double f, const Tensor& x, const Tensor& t) override {
    real_.add_sum_of_squares(s, f, x, t);
  }
  void adamw(Stream& s, const AdamW& options, double max_norm, const Tensor& total, const Tensor& g,
             const Tensor& m1, const Tensor& m2, const Tensor& master, const Tensor& w) override {
    AdamW changed = options;
    changed.step += mutation_.step_offset;
    if (mutation_.narrow_masters) round_to_bf16(s, master);
    real_.adamw(s, changed, max_norm, total, g, m1, m2, master, mutation_.stale_weights ? master : w);
  }

 private:
  static void round_to_bf16(Stream& s, const Tensor& tensor) {  // of f32
    cpu::cpu_stream(s).enqueue([tensor] {
      auto* values = cpu::data<float>(tensor);
      std::transform(values, values + tensor.elements(), values, [](float x) { return Bfloat16(x); });
    });
  }
  [[nodiscard]] int64_t mutated(int64_t first) const {
    return mutation_.first_entry ? mutation_.first_entry(first) : first;
  }
  [[nodiscard]] AttentionShape mutated(AttentionShape shape) const {
    if (mutation_.causal_leak) {
      shape.seq *= shape.batch;
      shape.batch = 1;
    }
    return shape;
  }

  Kernels& real_;
  Device& device_;
  const Mutation& mutation_;
  int weight_gradients_ = 0;
  std::vector<Tensor> kept_;
};

class MutatedDevice : public Device {
 public:
  MutatedDevice(Device& real, const Mutation& mutation)
      : real_(real), kernels_(real.kernels(), real, mutation) {}
  std::unique_ptr<Stream> make_stream(const std::string& name, StreamPriority priority) override {
    return real_.make_stream(name, priority);
  }
  Tensor allocate(Stream& s, MemoryKind kind, DType type, int64_t rows, int64_t columns) override {
    return real_.allocate(s, kind, type, rows, columns);
  }
  void retag(Stream& s, const Tensor& t, MemoryKind kind) override { real_.retag(s, t, kind); }
  void release(Stream& s, Tensor& t) override { real_.release(s, t); }
  void upload(Stream& s, const Tensor& t, std::span<const std::byte> b) override { real_.upload(s, t, b); }
  void download(Stream& s, const Tensor& t, std::span<std::byte> b) override { real_.download(s, t, b); }
  void synchronize() override { real_.synchronize(); }
  Kernels& kernels() override { return kernels_; }
  MemoryLedger& memory() override { return real_.memory(); }

 private:
  Device& real_;
  MutatedKernels kernels_;
};

class MutatedCommunicator : public Communicator {
 public:
  MutatedCommunicator(std::unique_ptr<Communicator> real, std::string name, const Mutation& mutation)
      : real_(std::move(real)), name_(std::move(name)), mutation_(mutation) {}
  [[nodiscard]] int size() const override { return real_->size(); }
  [[nodiscard]] int index() const override { return real_->index(); }
  void all_reduce(Stream& s, Reduce reduce, const Tensor& t) override {
    if (name_ == mutation_.dropped_group) return;
    if (name_ == "tp" && all_reduces_++ == mutation_.dropped_all_reduce) return;
    real_->all_reduce(s, reduce, t);
  }
  void all_gather(Stream& s, const Tensor& a, const Tensor& b) override { real_->all_gather(s, a, b); }
  void reduce_scatter(Stream& s, const Tensor& a, const Tensor& b) override {
    real_->reduce_scatter(s, a, b);
  }
  void send(Stream& s, const Tensor& t, int to) override { real_->send(s, t, to); }
  void receive(Stream& s, const Tensor& t, int from) override { real_->receive(s, t, from); }
  [[nodiscard]] Traffic traffic() const override { return real_->traffic(); }

 private:
  std::unique_ptr<Communicator> real_;
  const std::string name_;
  const Mutation& mutation_;
  int all_reduces_ = 0;
};

class MutatedBackend : public Backend {
 public:
  MutatedBackend(std::unique_ptr<Backend> real, Mutation mutation)
      : real_(std::move(real)), mutation_(std::move(mutation)) {
    for (const int rank : real_->ranks())
      devices_.push_back(std::make_unique<MutatedDevice>(real_->device(rank), mutation_));
  }
  [[nodiscard]] std::string name() const override { return real_->name(); }
  [[nodiscard]] int world_size() const override { return real_->world_size(); }
  [[nodiscard]] std::vector<int> ranks() const override { return real_->ranks(); }
  Device& device(int rank) override { return *devices_[rank]; }
  std::unique_ptr<Communicator> communicator(const std::string& name, const std::vector<int>& members,
                                             int index, GroupUse use) override {
    return std::make_unique<MutatedCommunicator>(real_->communicator(name, members, index, use), name,
                                                 mutation_);
  }
  RunGuard& guard() override { return real_->guard(); }
  void describe_with(DescribeOp describe) override { real_->describe_with(std::move(describe)); }

 private:
  std::unique_ptr<Backend> real_;
  const Mutation mutation_;
  std::vector<std::unique_ptr<MutatedDevice>> devices_;
};

}  // namespace stp::testing_support
