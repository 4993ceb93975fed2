#include "stp/cpu/cpu_backend.h"

#include <map>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "stp/cpu/cpu_device.h"
#include "stp/cpu/local_communicator.h"

namespace stp {
namespace {

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(const BackendOptions& options) : run_(options.deadline_s) {
    if (options.world_size < 1) throw std::logic_error("a world of no rank");
    for (int rank = 0; rank < options.world_size; ++rank)
      devices_.push_back(std::make_unique<CpuDevice>(run_, rank, options));
  }

  [[nodiscard]] std::string name() const override { return "cpu"; }
  [[nodiscard]] int world_size() const override { return static_cast<int>(devices_.size()); }
  [[nodiscard]] std::vector<int> ranks() const override {
    std::vector<int> all(devices_.size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  CpuDevice& device(int rank) override { return *devices_.at(rank); }

  std::unique_ptr<Communicator> communicator(const std::string& name, const std::vector<int>& members,
                                             int index) override {
    if (index < 0 || index >= static_cast<int>(members.size()))
      throw std::logic_error("group " + name + " has no member " + std::to_string(index));
    const std::lock_guard lock(mutex_);
    auto& group = groups_[{name, members}];
    if (!group) group = std::make_shared<LocalGroup>(name, members);
    return std::make_unique<LocalCommunicator>(group, index);
  }

  RunGuard& guard() override { return run_.guard; }
  void describe_with(DescribeOp describe) override { run_.describe_with(std::move(describe)); }

 private:
  CpuRun run_;
  std::vector<std::unique_ptr<CpuDevice>> devices_;
  std::mutex mutex_;
  std::map<std::pair<std::string, std::vector<int>>, std::shared_ptr<LocalGroup>> groups_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

BlasUse blas_use(Backend& backend, int rank) {
  const BlasCounter& counter = dynamic_cast<CpuBackend&>(backend).device(rank).blas();
  return {counter.seconds, counter.flops};
}

}  // namespace stp
