// A backend with a bug: it hands everything to the CPU backend but for the calls that a mutation changes. The
// executor is the real one; what it asks for goes wrong as a seeded bug would make it go wrong.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "stp/cpu/cpu_backend.h"
#include "stp/cpu/cpu_stream.h"
#include "stp/device/bfloat16.h"
#include "support/forwarding_kernels.h"

namespace stp::testing_support {

/// What streams wait for that stand still.
class Late : public std::enable_shared_from_this<Late> {
 public:
  void wait_in(Stream& stream) {
    cpu::CpuStream& s = cpu::cpu_stream(stream);
    s.enqueue_waiting([self = shared_from_this(), &s] {
      std::unique_lock lock(self->mutex_);
      s.run().guard.wait(
          lock, self->changed_, RunGuard::WaitFor::own_work, [&] { return self->came_; },
          [&] { return s.where() + " stands still"; });
    });
  }
  void come_in(Stream& stream) {
    cpu::cpu_stream(stream).enqueue([self = shared_from_this()] {
      const std::lock_guard lock(self->mutex_);
      self->came_ = true;
      self->changed_.notify_all();
    });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool came_ = false;
};

/// Which calls go wrong. Unset: as they should.
struct Mutation {
  std::string dropped_group;               // whose all-reduces do nothing
  int dropped_all_reduce = -1;             // or the n-th of group "tp" alone
  int dropped_exchange = -1;               // the n-th exchange of the group "cp"
  bool swapped_heads = false;              // an all-to-all gives each rank the heads of the next
  bool keep_saved = false;                 // one more tensor a norm is kept
  std::function<double(double)> scale;     // the residual's share, forward
  std::function<double(double)> residual;  // and backward
  int lost_weight_gradient = -1;           // the n-th GEMM that adds to a gradient is left out
  int late_weight_gradient = -1;           // or stands still until so many reductions of gradients are done
  int reductions_before_it = 0;
  std::shared_ptr<Late> reduced = std::make_shared<Late>();
  bool overwrite_gradients = false;  // each microbatch overwrites them
  bool no_bias_gradient = false;
  bool no_rope_backward = false;
  std::function<int64_t(int64_t)> first_entry;  // of this rank's share of the vocabulary
  int step_offset = 0;                          // of the optimizer's bias correction
  bool early_free = false;                      // the norm's output is poisoned before W reads it
  bool causal_leak = false;                     // the shape's sequences run together
  // A missing wait only shows if the other stream is late: from the n-th copy to the device on, the stream
  // stands still until the optimizer has run; or the first norm until so many copies to the host have.
  int late_copy = -1;
  int late_forward = 0;
  std::function<bool(const Tensor&)> spoiled_gradient;  // whether a GEMM's weight gradient becomes NaN
  bool no_copies = false;                               // post-validation has nothing to go back to
  // Of bf16:
  bool narrow_gradients = false;  // sums over microbatches are rounded as they grow
  bool narrow_masters = false;    // a step starts from rounded weights
  bool stale_weights = false;     // the passes do not see what the optimizer did
};

class MutatedKernels : public ForwardingKernels {
 public:
  MutatedKernels(std::unique_ptr<Kernels> real, Device& device, const Mutation& mutation)
      : ForwardingKernels(std::move(real)), device_(device), mutation_(mutation) {}
  [[nodiscard]] bool vision() const override { return false; }

 private:
  void run_copy(Stream& s, const Tensor& a, const Tensor& b) override {
    if (mutation_.no_copies) return;
    const bool to_device = a.memory->kind == MemoryKind::host;
    if (to_device && mutation_.late_copy >= 0 && copies_to_device_++ >= mutation_.late_copy)
      late_->wait_in(s);
    real_->copy(s, a, b);
    if (!to_device && ++copies_to_host_ == mutation_.late_forward) late_->come_in(s);
  }
  void run_copy_columns(Stream& s, const Tensor& a, int64_t from, const Tensor& b, int64_t to,
                        int64_t count) override {
    if (mutation_.swapped_heads && a.columns > b.columns) from = (from + count) % a.columns;
    real_->copy_columns(s, a, from, b, to, count);
  }
  void run_scale(Stream& s, double factor, const Tensor& a, const Tensor& b) override {
    real_->scale(s, mutation_.scale ? mutation_.scale(factor) : factor, a, b);
  }
  void run_gemm(Stream& s, const GemmShape& shape, double alpha, const Tensor& a, const Tensor& b,
                double beta, const Tensor& c) override {
    const bool ta = shape.transpose_a, tb = shape.transpose_b;
    const bool weight_gradient = ta && beta == 1;
    if (weight_gradient && weight_gradients_ == mutation_.late_weight_gradient) mutation_.reduced->wait_in(s);
    if (weight_gradient && weight_gradients_++ == mutation_.lost_weight_gradient) return;
    if (weight_gradient && mutation_.overwrite_gradients) beta = 0;
    if (weight_gradient && mutation_.early_free) {
      Tensor other = device_.allocate(s, MemoryKind::working, b.type, b.rows, b.columns);
      real_->fill(s, other, 0.5);
      real_->gemm(s, ta, tb, alpha, a, other, beta, c);
      return device_.release(s, other);
    }
    real_->gemm(s, ta, tb, alpha, a, b, beta, c);
    if (weight_gradient && mutation_.narrow_gradients) round_to_bf16(s, c);
    if (weight_gradient && mutation_.spoiled_gradient && mutation_.spoiled_gradient(c))
      real_->fill(s, c, std::numeric_limits<double>::quiet_NaN());
  }
  void run_rms_norm_forward(Stream& s, const Tensor& x, const Tensor& g, double e, const Tensor& y,
                            const Tensor& r) override {
    if (mutation_.late_forward > 0) late_->wait_in(s);
    real_->rms_norm_forward(s, x, g, e, y, r);
    if (mutation_.keep_saved) kept_.push_back(device_.allocate(s, MemoryKind::saved, x.type, x.rows, 1));
  }
  void run_rms_norm_backward(Stream& s, const Tensor& dy, const Tensor& x, const Tensor& g, const Tensor& r,
                             double factor, const Tensor& residual, const Tensor& dx,
                             const Tensor& dg) override {
    real_->rms_norm_backward(s, dy, x, g, r, mutation_.residual ? mutation_.residual(factor) : factor,
                             residual, dx, dg);
  }
  void run_rope_backward(Stream& s, const AttentionShape& shape, double theta, const Tensor& g) override {
    if (!mutation_.no_rope_backward) real_->rope_backward(s, shape, theta, g);
  }
  void run_add_column_sums(Stream& s, const Tensor& g, const Tensor& b) override {
    if (!mutation_.no_bias_gradient) real_->add_column_sums(s, g, b);
  }
  void run_attention_forward(Stream& s, const AttentionShape& shape, const Tensor& qkv, const Tensor& o,
                             const Tensor& l) override {
    real_->attention_forward(s, mutated(shape), qkv, o, l);
  }
  void run_attention_backward(Stream& s, const AttentionShape& shape, const Tensor& qkv, const Tensor& o,
                              const Tensor& l, const Tensor& d, const Tensor& g) override {
    real_->attention_backward(s, mutated(shape), qkv, o, l, d, g);
  }
  void run_embedding_forward(Stream& s, const Tensor& t, const Tensor& table, int64_t first,
                             const Tensor& o) override {
    real_->embedding_forward(s, t, table, mutated(first), o);
  }
  void run_embedding_backward(Stream& s, const Tensor& t, const Tensor& d, int64_t first,
                              const Tensor& g) override {
    real_->embedding_backward(s, t, d, mutated(first), g);
  }
  void run_adamw(Stream& s, const AdamW& options, double max_norm, const Tensor& total, const Tensor& g,
                 const Tensor& m1, const Tensor& m2, const Tensor& master, const Tensor& w) override {
    AdamW changed = options;
    changed.step += mutation_.step_offset;
    if (mutation_.narrow_masters) round_to_bf16(s, master);
    late_->come_in(s);
    real_->adamw(s, changed, max_norm, total, g, m1, m2, master, mutation_.stale_weights ? master : w);
  }

  static void round_to_bf16(Stream& s, const Tensor& tensor) {  // of f32
    cpu::cpu_stream(s).enqueue([tensor] {
      auto* values = data<float>(tensor);
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

  Device& device_;
  const Mutation& mutation_;
  int weight_gradients_ = 0;
  std::vector<Tensor> kept_;
  int copies_to_device_ = 0, copies_to_host_ = 0;
  const std::shared_ptr<Late> late_ = std::make_shared<Late>();
};

class MutatedGroup : public Group {
 public:
  MutatedGroup(std::unique_ptr<Group> real, const Mutation& mutation)
      : Group(real->name(), real->members(), real->local()), real_(std::move(real)), mutation_(mutation) {}

 private:
  void carry_out(const Call& call) override {
    switch (call.kind) {
      case CallKind::all_reduce:
        if (name() == mutation_.dropped_group) return;
        if (name() == "tp" && all_reduces_++ == mutation_.dropped_all_reduce) return;
        real_->all_reduce(call.reduce, call.parts);
        if (name() == "dp" && ++reductions_ == mutation_.reductions_before_it)
          mutation_.reduced->come_in(*call.parts.front().stream);
        return;
      case CallKind::all_gather:
        return real_->all_gather(call.parts);
      case CallKind::reduce_scatter:
        return real_->reduce_scatter(call.parts);
      case CallKind::all_to_all:
        if (name() == "cp" && exchanges_++ == mutation_.dropped_exchange) return;
        return real_->all_to_all(call.parts);
      case CallKind::transfer:
        if (name() == "cp" && exchanges_++ == mutation_.dropped_exchange) return;
        return real_->transfer(call.parts);
    }
  }

  std::unique_ptr<Group> real_;
  const Mutation& mutation_;
  int all_reduces_ = 0, reductions_ = 0, exchanges_ = 0;
};

class MutatedBackend : public Backend {
 public:
  MutatedBackend(const BackendOptions& options, Mutation mutation)
      : mutation_(std::move(mutation)),
        real_(cpu::make_backend(options, [this](std::unique_ptr<Kernels> kernels, Device& device) {
          return std::make_unique<MutatedKernels>(std::move(kernels), device, mutation_);
        })) {}
  [[nodiscard]] std::string name() const override { return real_->name(); }
  [[nodiscard]] int world_size() const override { return real_->world_size(); }
  [[nodiscard]] std::vector<int> ranks() const override { return real_->ranks(); }
  Device& device(int rank) override { return real_->device(rank); }
  std::unique_ptr<Group> group(const std::string& name, const std::vector<int>& members,
                               GroupUse use) override {
    return std::make_unique<MutatedGroup>(real_->group(name, members, use), mutation_);
  }
  Processes& processes() override { return real_->processes(); }
  RunGuard& guard() override { return real_->guard(); }
  void describe_with(DescribeOp describe) override { real_->describe_with(std::move(describe)); }

 private:
  const Mutation mutation_;
  std::unique_ptr<Backend> real_;
};

}  // namespace stp::testing_support
