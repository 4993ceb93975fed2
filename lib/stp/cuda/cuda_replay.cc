#include "stp/cuda/cuda_replay.h"

#include <utility>
#include <vector>

#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_memory.h"
#include "stp/cuda/cuda_rank_backend.h"
#include "stp/cuda/cuda_stream.h"
#include "stp/cuda/host_numbers.h"
#include "stp/cuda/paced.h"

namespace stp::cuda {
namespace {

// By how many nanoseconds calls were late.
using LateNumbers = HostNumbers<unsigned long long>;

class PacedCudaCommunicator : public PacedCommunicator {
 public:
  PacedCudaCommunicator(CudaDevice& device, const Replay& replay, const std::vector<int>& members, int index)
      : PacedCommunicator(replay, members, index, launch::kPacedPiece),
        device_(device),
        late_(std::make_shared<LateNumbers>(device.run())) {}

 private:
  void enter(Stream& stream, PacedCall call) override {
    CudaStream& ours = cuda_stream(stream);
    ours.enqueue([&device = device_, &ours, counter = counter(), paced = paced(), late = late_,
                  call = std::move(call)](cudaStream_t on) {
      call.refuse_endless(device.run().guard);
      const auto& [kind, reduce, in, out] = call.part;
      launch::PacedMove move{.pace = call.pace, .kind = kind, .size = call.size, .index = call.index};
      if (in) move.in = data<std::byte>(in);
      if (out) move.out = data<std::byte>(out);
      move.type = out ? out.type : in.type;
      move.late_ns = late->take();
      const size_t bytes = launch::paced_link_bytes(call.pace);
      device.scratch().memory().with(on, bytes, [&](void* link) {
        move.link = link;
        launch::paced(on, move);
      });
      counter->count(kind, call.part.sent_bytes());
      ours.when_passed([paced, late, bytes, number = move.late_ns] {
        paced->count(1e-9 * static_cast<double>(late->give_back(number)), bytes);
      });
    });
  }

  CudaDevice& device_;
  std::shared_ptr<LateNumbers> late_;
};

class CudaReplayBackend : public CudaRankBackend {
 public:
  CudaReplayBackend(const BackendOptions& options, const Replay& replay, int gpu)
      : CudaRankBackend(options, replay.rank, gpu), replay_(replay) {}

  std::unique_ptr<Communicator> communicator(const std::string&, const std::vector<int>& members, int index,
                                             GroupUse) override {
    return make_paced_cuda_communicator(device(replay_.rank), replay_, members, index);
  }

 private:
  const Replay replay_;
};

}  // namespace

std::unique_ptr<PacedCommunicator> make_paced_cuda_communicator(CudaDevice& device, const Replay& replay,
                                                                const std::vector<int>& members, int index) {
  return std::make_unique<PacedCudaCommunicator>(device, replay, members, index);
}

std::unique_ptr<Backend> make_replay_backend(const BackendOptions& options, const Replay& replay, int gpu) {
  return std::make_unique<CudaReplayBackend>(options, replay, gpu);
}

}  // namespace stp::cuda
