#include "stp/cpu/cpu_backend.h"

#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

#include "stp/cpu/cpu_device.h"
#include "stp/cpu/local_communicator.h"
#include "stp/cpu/paced_communicator.h"

namespace stp::cpu {
namespace {

class CpuBackend : public Backend {
 public:
  /// With `replay` its rank alone.
  explicit CpuBackend(const BackendOptions& options, std::optional<Replay> replay = std::nullopt)
      : run_(options.deadline_s), world_size_(options.world_size), replay_(std::move(replay)) {
    if (world_size_ < 1) throw std::logic_error("a world of no rank");
    if (replay_ && (replay_->rank < 0 || replay_->rank >= world_size_))
      throw std::logic_error("a replay of a rank that the world does not have");
    for (int rank = 0; rank < world_size_; ++rank)
      if (!replay_ || replay_->rank == rank)
        devices_.emplace(rank, std::make_unique<CpuDevice>(run_, rank, options));
  }

  [[nodiscard]] std::string name() const override { return "cpu"; }
  [[nodiscard]] int world_size() const override { return world_size_; }
  [[nodiscard]] std::vector<int> ranks() const override {
    std::vector<int> all;
    for (const auto& [rank, device] : devices_) all.push_back(rank);
    return all;
  }
  CpuDevice& device(int rank) override { return *devices_.at(rank); }

  std::unique_ptr<Communicator> communicator(const std::string& name, const std::vector<int>& members,
                                             int index, GroupUse) override {
    const auto group = groups_.of(name, members, index);
    if (replay_) return make_paced_cpu_communicator(*replay_, members, index);
    return std::make_unique<LocalCommunicator>(group, index);
  }

  RunGuard& guard() override { return run_.guard; }
  void describe_with(DescribeOp describe) override { run_.describe_with(std::move(describe)); }

 private:
  CpuRun run_;
  const int world_size_;
  const std::optional<Replay> replay_;
  std::map<int, std::unique_ptr<CpuDevice>> devices_;  // by rank
  Groups<LocalCall> groups_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(const BackendOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

std::unique_ptr<Backend> make_replay_backend(const BackendOptions& options, const Replay& replay) {
  return std::make_unique<CpuBackend>(options, replay);
}

bool counts_blas(const Backend& backend) { return dynamic_cast<const CpuBackend*>(&backend) != nullptr; }

BlasUse blas_use(Backend& backend, int rank) {
  const BlasCounter& counter = dynamic_cast<CpuBackend&>(backend).device(rank).blas();
  return {counter.seconds, counter.flops};
}

}  // namespace stp::cpu
