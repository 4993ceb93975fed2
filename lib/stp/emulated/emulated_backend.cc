#include "stp/emulated/emulated_backend.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "stp/cpu/cpu_device.h"
#include "stp/cpu/cpu_group.h"
#include "stp/cpu/cpu_stream.h"
#include "stp/device/kernels.h"

namespace stp::emulated {
namespace {

class NoKernels : public KernelsAlike<NoKernels> {
 public:
  [[nodiscard]] bool vision() const override { return true; }
  template <typename Kernel>
  void run_any(Stream& /*stream*/, const Kernel& /*kernel*/) {}
};

/// Tensors have distinct addresses, which nobody reads.
class EmulatedDevice : public cpu::CpuDevice {
 public:
  EmulatedDevice(cpu::CpuRun& run, int rank, const BackendOptions& options)
      : CpuDevice(run, rank, options,
                  [](std::unique_ptr<Kernels>, Device&) { return std::make_unique<NoKernels>(); }) {}
  EmulatedDevice(const EmulatedDevice&) = delete;
  EmulatedDevice& operator=(const EmulatedDevice&) = delete;
  ~EmulatedDevice() override { free_blocks(); }

  void upload(Stream& /*stream*/, const Tensor& tensor, std::span<const std::byte> bytes) override {
    check_holds(tensor, bytes.size());
  }
  void download(Stream& stream, const Tensor& tensor, std::span<std::byte> bytes) override {
    check_holds(tensor, bytes.size());
    cpu::cpu_stream(stream).synchronize();
    std::ranges::fill(bytes, std::byte{0});
  }

 private:
  std::byte* take_memory(size_t bytes) override {
    constexpr size_t kAlignment = 64;
    next_ += kAlignment * (1 + taken_ / kAlignment);
    taken_ = bytes;
    return reinterpret_cast<std::byte*>(next_);  // NOLINT(performance-no-int-to-ptr): never read
  }
  void free_memory(std::byte* /*at*/) override {}
  void fill_with_nan(Stream& /*stream*/, std::byte* /*at*/, size_t /*bytes*/) override {}

  size_t next_ = 0, taken_ = 0;  // the latest block: where it begins, its bytes
};

/// One number, with memory: what members exchange in place of their tensors.
Tensor make_number() {
  auto number = std::make_shared<float>(0.0F);
  auto memory = std::make_shared<Memory>();
  *memory = {reinterpret_cast<std::byte*>(number.get()), sizeof(float), MemoryKind::working, true};
  // Kept with the tensor's memory.
  return {std::shared_ptr<Memory>(memory.get(), [memory, number](Memory*) {}), 1, 1, DType::f32};
}

/// Members come together in a group of the CPU backend.
class EmulatedGroup : public Group {
 public:
  explicit EmulatedGroup(std::unique_ptr<Group> real)
      : Group(real->name(), real->members(), real->local()), real_(std::move(real)) {
    for (size_t i = 0; i < local().size(); ++i) numbers_.emplace_back(make_number(), make_number());
  }

 private:
  void carry_out(const Call& call) override {
    std::vector<Part> parts;
    for (size_t i = 0; i < call.parts.size(); ++i) {
      const auto& [in, out] = numbers_[i];
      const Part& part = call.parts[i];
      parts.push_back({part.stream, part.in ? in : Tensor{}, part.out ? out : Tensor{}});
      if (call.kind != CallKind::transfer) parts.back() = {part.stream, in, in};
    }
    if (call.kind == CallKind::transfer)
      real_->transfer(parts);
    else
      real_->all_reduce(call.reduce, parts);
  }

  const std::unique_ptr<Group> real_;
  std::vector<std::pair<Tensor, Tensor>> numbers_;  // by local member: sent, received
};

/// Threads made while it lives stand for devices and wake in time: other programs do not delay them where the
/// system permits that, and Linux does not let their sleeps end 50 microseconds late, as it does by default.
class WakeInTime {
 public:
  WakeInTime() {
    pthread_getschedparam(pthread_self(), &policy_, &priority_);
    const sched_param least{.sched_priority = sched_get_priority_min(SCHED_RR)};
    pthread_setschedparam(pthread_self(), SCHED_RR, &least);
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  }
  WakeInTime(const WakeInTime&) = delete;
  WakeInTime& operator=(const WakeInTime&) = delete;
  ~WakeInTime() {
    pthread_setschedparam(pthread_self(), policy_, &priority_);
    prctl(PR_SET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL);
  }

 private:
  int policy_ = SCHED_OTHER;
  sched_param priority_{};
};

class EmulatedBackend : private WakeInTime, public BackendOf<cpu::CpuRun, EmulatedDevice> {
 public:
  EmulatedBackend(const BackendOptions& options, Processes* of_run)
      : BackendOf(options, of_run, options.hooks) {
    for (const int rank : ranks_of_process(world_size(), processes().index(), processes().count()))
      add_device(rank, options);
  }

  [[nodiscard]] std::string name() const override { return "emulated"; }
  std::unique_ptr<Group> group(const std::string& name, const std::vector<int>& members, GroupUse) override {
    return std::make_unique<EmulatedGroup>(cpu::make_group(name, members, world_size(), processes()));
  }
};

}  // namespace

std::unique_ptr<Backend> make_backend(const BackendOptions& options, Processes* of_run) {
  return std::make_unique<EmulatedBackend>(options, of_run);
}

}  // namespace stp::emulated
