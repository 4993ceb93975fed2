#include "stp/cuda/cuda_replay.h"

#include <utility>

#include "stp/backend/paced_communicator.h"
#include "stp/cuda/cuda_memory.h"
#include "stp/cuda/cuda_rank_backend.h"
#include "stp/cuda/cuda_stream.h"
#include "stp/cuda/paced.h"

namespace stp {
namespace {

class PacedCudaCommunicator : public PacedCommunicator {
 public:
  PacedCudaCommunicator(CudaDevice& device, const Replay& replay, const std::vector<int>& members, int index)
      : PacedCommunicator(replay, members, index, launch::kPacedPiece), device_(device) {}

 private:
  void enter(Stream& stream, PacedCall call) override {
    cuda_stream(stream).enqueue(
        [&device = device_, counter = counter(), call = std::move(call)](cudaStream_t on) {
          call.refuse_endless(device.run().guard);
          const auto& [kind, reduce, in, out] = call.part;
          launch::PacedMove move{.pace = call.pace, .kind = kind, .size = call.size, .index = call.index};
          if (in) move.in = data<std::byte>(in);
          if (out) move.out = data<std::byte>(out);
          move.type = out ? out.type : in.type;
          const size_t bytes = launch::paced_link_bytes(call.pace);
          move.link = device.take(on, bytes);
          launch::paced(on, move);
          device.give_back(on, move.link, bytes);
          counter->count(kind, call.part.sent_bytes());
        });
  }

  CudaDevice& device_;
};

class CudaReplayBackend : public CudaRankBackend {
 public:
  CudaReplayBackend(const BackendOptions& options, const Replay& replay, int gpu)
      : CudaRankBackend(options, replay.rank, gpu), replay_(replay) {}

  std::unique_ptr<Communicator> communicator(const std::string&, const std::vector<int>& members,
                                             int index) override {
    return make_paced_cuda_communicator(device(replay_.rank), replay_, members, index);
  }

 private:
  const Replay replay_;
};

}  // namespace

std::unique_ptr<Communicator> make_paced_cuda_communicator(CudaDevice& device, const Replay& replay,
                                                           const std::vector<int>& members, int index) {
  return std::make_unique<PacedCudaCommunicator>(device, replay, members, index);
}

std::unique_ptr<Backend> make_cuda_replay_backend(const BackendOptions& options, const Replay& replay,
                                                  int gpu) {
  return std::make_unique<CudaReplayBackend>(options, replay, gpu);
}

}  // namespace stp
