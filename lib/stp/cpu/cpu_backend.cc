#include "stp/cpu/cpu_backend.h"

#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

#include "stp/cpu/cpu_device.h"
#include "stp/cpu/cpu_group.h"
#include "stp/cpu/cpu_replay.h"

namespace stp::cpu {
namespace {

class CpuBackend : public Backend {
 public:
  /// `processes`: null if this process drives all ranks. With `replay`, only its rank.
  CpuBackend(const BackendOptions& options, Processes* processes, std::optional<Replay> replay,
             const ReplaceKernels& replace)
      : processes_(processes == nullptr ? alone_ : *processes),
        run_(options.deadline_s, &processes_.progress(), options.hooks),
        world_size_(options.world_size),
        replay_(std::move(replay)) {
    if (world_size_ < 1) throw std::logic_error("a world without ranks");
    if (replay_ && (replay_->rank < 0 || replay_->rank >= world_size_))
      throw std::logic_error("a replay of a rank outside the world");
    for (const int rank : replay_ ? std::vector{replay_->rank}
                                  : ranks_of_process(world_size_, processes_.index(), processes_.count()))
      devices_.emplace(rank, std::make_unique<CpuDevice>(run_, rank, options, replace));
  }

  [[nodiscard]] std::string name() const override { return "cpu"; }
  [[nodiscard]] int world_size() const override { return world_size_; }
  [[nodiscard]] std::vector<int> ranks() const override {
    std::vector<int> all;
    for (const auto& [rank, device] : devices_) all.push_back(rank);
    return all;
  }
  CpuDevice& device(int rank) override { return *devices_.at(rank); }

  std::unique_ptr<Group> group(const std::string& name, const std::vector<int>& members, GroupUse) override {
    if (replay_) return make_emulated_group(name, *replay_, members);
    std::vector<int> driven_by;
    for (const int member : members)
      driven_by.push_back(process_of_rank(member, world_size_, processes_.count()));
    return make_group(name, members, driven_by, processes_);
  }

  Processes& processes() override { return processes_; }
  RunGuard& guard() override { return run_.guard; }
  void describe_with(DescribeOp describe) override { run_.describe_with(std::move(describe)); }

 private:
  Processes alone_;
  Processes& processes_;
  CpuRun run_;
  const int world_size_;
  const std::optional<Replay> replay_;
  std::map<int, std::unique_ptr<CpuDevice>> devices_;  // by rank
};

}  // namespace

std::unique_ptr<Backend> make_backend(const BackendOptions& options, const ReplaceKernels& replace) {
  return std::make_unique<CpuBackend>(options, nullptr, std::nullopt, replace);
}

std::unique_ptr<Backend> make_backend(const BackendOptions& options, Processes& processes,
                                      const ReplaceKernels& replace) {
  return std::make_unique<CpuBackend>(options, &processes, std::nullopt, replace);
}

std::unique_ptr<Backend> make_replay_backend(const BackendOptions& options, const Replay& replay) {
  return std::make_unique<CpuBackend>(options, nullptr, replay, ReplaceKernels());
}

bool counts_blas(const Backend& backend) { return dynamic_cast<const CpuBackend*>(&backend) != nullptr; }

BlasUse blas_use(Backend& backend, int rank) {
  const BlasCounter& counter = dynamic_cast<CpuBackend&>(backend).device(rank).blas();
  return {counter.seconds, counter.flops};
}

}  // namespace stp::cpu
