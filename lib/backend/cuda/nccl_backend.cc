#include "stp/cuda/nccl_backend.h"

#include <exception>
#include <optional>
#include <utility>

#include "stp/base/error.h"
#include "stp/cuda/cuda_rank_backend.h"
#include "stp/cuda/nccl_communicator.h"

namespace stp {
namespace {

class NcclBackend : public CudaRankBackend {
 public:
  NcclBackend(const BackendOptions& options, const ProcessPlace& place, const NcclOptions& tuning,
              const RendezvousOptions& rendezvous, const NcclApi& api, std::optional<Listener> listener)
      : CudaRankBackend(options, place.rank, place.local_rank) {
    RunGuard& guard = CudaRankBackend::guard();
    rendezvous_.emplace(place, guard, rendezvous, std::move(listener));
    session_.emplace(api, cuda_runtime_for_nccl(run()), *rendezvous_, guard, tuning);
  }
  NcclBackend(const NcclBackend&) = delete;
  NcclBackend& operator=(const NcclBackend&) = delete;
  ~NcclBackend() override {
    session_.reset();  // with the other processes
    try {
      if (std::uncaught_exceptions() == 0) rendezvous_->end();
    } catch (const std::exception&) {
      // The run has failed; whoever ends it knows.
    }
  }

  std::unique_ptr<Communicator> communicator(const std::string& name, const std::vector<int>& members,
                                             int index) override {
    run().make_current();  // NCCL founds groups on the calling thread's device
    return make_nccl_communicator(*session_, name, members, index);
  }

 private:
  std::optional<Rendezvous> rendezvous_;
  std::optional<NcclSession> session_;
};

}  // namespace

std::unique_ptr<Backend> make_nccl_backend(const BackendOptions& options, const ProcessPlace& place,
                                           const NcclOptions& tuning, const RendezvousOptions& rendezvous,
                                           const NcclApi& api, std::optional<Listener> listener) {
  if (options.world_size != place.world_size)
    throw InputError("", "parallel",
                     std::to_string(options.world_size) + " ranks, but the launcher started " +
                         std::to_string(place.world_size) + " processes",
                     "start one for each rank");
  return std::make_unique<NcclBackend>(options, place, tuning, rendezvous, api, std::move(listener));
}

}  // namespace stp
