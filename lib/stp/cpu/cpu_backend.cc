#include "stp/cpu/cpu_backend.h"

#include <optional>
#include <stdexcept>
#include <utility>

#include "stp/cpu/cpu_device.h"
#include "stp/cpu/cpu_group.h"
#include "stp/cpu/cpu_replay.h"

namespace stp::cpu {
namespace {

class CpuBackend : public BackendOf<CpuRun, CpuDevice> {
 public:
  /// With `replay`, this process drives only its rank.
  CpuBackend(const BackendOptions& options, Processes* of_run, std::optional<Replay> replay,
             const ReplaceKernels& replace)
      : BackendOf(options, of_run, options.hooks), replay_(std::move(replay)) {
    if (replay_ && (replay_->rank < 0 || replay_->rank >= world_size()))
      throw std::logic_error("a replay of a rank outside the world");
    for (const int rank : replay_ ? std::vector{replay_->rank}
                                  : ranks_of_process(world_size(), processes().index(), processes().count()))
      add_device(rank, options, replace);
  }

  [[nodiscard]] std::string name() const override { return "cpu"; }
  std::unique_ptr<Group> group(const std::string& name, const std::vector<int>& members, GroupUse) override {
    if (replay_) return make_emulated_group(name, *replay_, members);
    return make_group(name, members, world_size(), processes());
  }

 private:
  const std::optional<Replay> replay_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(const BackendOptions& options, Processes* of_run,
                                      const ReplaceKernels& replace) {
  return std::make_unique<CpuBackend>(options, of_run, std::nullopt, replace);
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
