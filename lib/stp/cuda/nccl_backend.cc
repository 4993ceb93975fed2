#include "stp/cuda/nccl_backend.h"

#include <utility>

#include "stp/cuda/cuda_rank_backend.h"
#include "stp/cuda/nccl_communicator.h"

namespace stp::cuda {
namespace {

class NcclBackend : public CudaRankBackend {
 public:
  NcclBackend(const BackendOptions& options, Rendezvous& rendezvous, const NcclOptions& tuning,
              const NcclApi& api)
      : CudaRankBackend(options, rendezvous.guard(), rendezvous.place().rank, rendezvous.place().local_rank),
        rendezvous_(rendezvous),
        session_(api, cuda_runtime_for_nccl(run()), rendezvous, rendezvous.guard(), tuning) {}

  [[nodiscard]] int process() const override { return rendezvous_.place().rank; }
  [[nodiscard]] int processes() const override { return rendezvous_.place().world_size; }
  std::vector<std::string> gather(const std::string& name, std::string text) override {
    return rendezvous_.gather(name, std::move(text));
  }

  std::unique_ptr<Communicator> communicator(const std::string& name, const std::vector<int>& members,
                                             int index, GroupUse use) override {
    run().make_current();  // NCCL founds groups on the calling thread's device
    return make_nccl_communicator(session_, name, members, index, use);
  }

 private:
  Rendezvous& rendezvous_;
  NcclSession session_;
};

}  // namespace

std::unique_ptr<Backend> make_nccl_backend(const BackendOptions& options, Rendezvous& rendezvous,
                                           const NcclOptions& tuning, const NcclApi& api) {
  check_world(options.world_size, rendezvous.place());
  // A driver may take its time to set up a GPU, and the others wait.
  const RunGuard::Work work(rendezvous.guard());
  return std::make_unique<NcclBackend>(options, rendezvous, tuning, api);
}

}  // namespace stp::cuda
