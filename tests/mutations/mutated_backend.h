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
#include "support/training.h"

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
  bool own_statistics = false;                  // a rank's logits are not brought to all ranks' maximum
  int step_offset = 0;                          // of the optimizer's bias correction
  bool early_free = false;                      // the norm's output is poisoned before W reads it
  bool causal_leak = false;                     // the shape's sequences run together
  // A missing wait only shows if the other stream is late: from the n-th copy to the device on, the stream
  // stands still until the optimizer has run; or the first norm until so many copies to the host have.
  int late_copy = -1;
  int late_forward = 0;
  std::function<bool(const TensorView&)> spoiled_gradient;  // whether a GEMM's weight gradient becomes NaN
  bool no_copies = false;                                   // post-validation has nothing to go back to
  // Of bf16:
  bool narrow_gradients = false;  // sums over microbatches are rounded as they grow
  bool narrow_masters = false;    // a step starts from rounded weights
  bool stale_weights = false;     // the passes do not see what the optimizer did
};

class MutatedKernels : public ForwardingKernels<MutatedKernels> {
 public:
  MutatedKernels(std::unique_ptr<Kernels> real, Device& device, const Mutation& mutation)
      : ForwardingKernels(std::move(real)), device_(device), mutation_(mutation) {}
  [[nodiscard]] bool vision() const override { return false; }

  using ForwardingKernels::run_any;
  void run_any(Stream& s, const kernel::Copy& copy) {
    if (mutation_.no_copies) return;
    const bool to_device = cpu::cpu_stream(s).name() == "h2d";
    if (to_device && mutation_.late_copy >= 0 && copies_to_device_++ >= mutation_.late_copy)
      late_->wait_in(s);
    real_->issue(s, copy);
    if (!to_device && ++copies_to_host_ == mutation_.late_forward) late_->come_in(s);
  }
  void run_any(Stream& s, kernel::CopyColumns copy) {
    if (mutation_.swapped_heads && copy.from.columns > copy.to.columns)
      copy.from_column = (copy.from_column + copy.count) % copy.from.columns;
    real_->issue(s, copy);
  }
  void run_any(Stream& s, kernel::Gemm gemm) {
    if (gemm.from && mutation_.scale) gemm.beta = mutation_.scale(gemm.beta);
    const bool weight_gradient = gemm.transpose_a && gemm.beta == 1;
    if (!weight_gradient) return real_->issue(s, gemm);
    if (weight_gradients_ == mutation_.late_weight_gradient) mutation_.reduced->wait_in(s);
    if (weight_gradients_++ == mutation_.lost_weight_gradient) return;
    if (mutation_.overwrite_gradients) gemm.beta = 0;
    Tensor other;
    if (mutation_.early_free) {
      other = device_.allocate(s, MemoryKind::working, gemm.b.type, gemm.b.rows, gemm.b.columns);
      real_->issue(s, kernel::Fill{.tensor = other, .value = 0.5});
      gemm.b = other;
    }
    real_->issue(s, gemm);
    if (other) device_.release(s, other);
    if (mutation_.narrow_gradients) round_to_bf16(s, gemm.c);
    if (mutation_.spoiled_gradient && mutation_.spoiled_gradient(gemm.c))
      real_->issue(s, kernel::Fill{.tensor = gemm.c, .value = std::numeric_limits<double>::quiet_NaN()});
  }
  void run_any(Stream& s, const kernel::NormForward& norm) {
    if (mutation_.late_forward > 0) late_->wait_in(s);
    real_->issue(s, norm);
    if (mutation_.keep_saved)
      kept_.push_back(device_.allocate(s, MemoryKind::saved, norm.x.type, norm.x.rows, 1));
  }
  void run_any(Stream& s, kernel::NormBackward norm) {
    if (mutation_.residual) norm.residual_factor = mutation_.residual(norm.residual_factor);
    real_->issue(s, norm);
  }
  void run_any(Stream& s, const kernel::RopeBackward& rope) {
    if (!mutation_.no_rope_backward) real_->issue(s, rope);
  }
  void run_any(Stream& s, const kernel::AddColumnSums& sums) {
    if (!mutation_.no_bias_gradient) real_->issue(s, sums);
  }
  void run_any(Stream& s, kernel::AttentionForward attention) {
    mutate(attention.shape);
    real_->issue(s, attention);
  }
  void run_any(Stream& s, kernel::AttentionBackward attention) {
    mutate(attention.shape);
    real_->issue(s, attention);
  }
  void run_any(Stream& s, kernel::EmbeddingForward embedding) {
    if (mutation_.first_entry) embedding.first = mutation_.first_entry(embedding.first);
    real_->issue(s, embedding);
  }
  void run_any(Stream& s, kernel::EmbeddingBackward embedding) {
    if (mutation_.first_entry) embedding.first = mutation_.first_entry(embedding.first);
    real_->issue(s, embedding);
  }
  void run_any(Stream& s, const kernel::RescaleRows& rows) {
    if (!mutation_.own_statistics) real_->issue(s, rows);
  }
  void run_any(Stream& s, kernel::AdamW step) {
    step.options.step += mutation_.step_offset;
    if (mutation_.narrow_masters) round_to_bf16(s, step.master);
    late_->come_in(s);
    if (mutation_.stale_weights) step.weight = step.master;
    real_->issue(s, step);
  }

 private:
  static void round_to_bf16(Stream& s, const TensorView& tensor) {  // of f32
    cpu::cpu_stream(s).enqueue([tensor] {
      auto* values = data<float>(tensor);
      std::transform(values, values + tensor.elements(), values, [](float x) { return Bfloat16(x); });
    });
  }
  void mutate(AttentionShape& shape) const {
    if (!mutation_.causal_leak) return;
    shape.seq *= shape.batch;
    shape.batch = 1;
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
    const bool sums = call.kind == CallKind::all_reduce,
               exchanges = call.kind == CallKind::all_to_all || call.kind == CallKind::transfer;
    if (sums && name() == mutation_.dropped_group) return;
    if (sums && name() == "tp" && all_reduces_++ == mutation_.dropped_all_reduce) return;
    if (exchanges && name() == "cp" && exchanges_++ == mutation_.dropped_exchange) return;
    real_->give(call);
    if (sums && name() == "dp" && ++reductions_ == mutation_.reductions_before_it)
      mutation_.reduced->come_in(*call.parts.front().stream);
  }

  std::unique_ptr<Group> real_;
  const Mutation& mutation_;
  int all_reduces_ = 0, reductions_ = 0, exchanges_ = 0;
};

class MutatedBackend : public Backend {
 public:
  MutatedBackend(const BackendOptions& options, Mutation mutation)
      : mutation_(std::move(mutation)),
        real_(cpu::make_backend(options, nullptr, [this](std::unique_ptr<Kernels> kernels, Device& device) {
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

/// A training on such a backend.
inline OnCpu mutated(const GridTraining& training, Program program, const Mutation& mutation,
                     bool poison = false) {
  return {
      training, std::move(program),
      std::make_unique<MutatedBackend>(
          BackendOptions{.world_size = training.grid.size(), .deadline_s = 20, .poison = poison}, mutation)};
}

}  // namespace stp::testing_support
