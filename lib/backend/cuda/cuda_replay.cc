#include "stp/cuda/cuda_replay.h"

#include <optional>
#include <utility>

#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_memory.h"
#include "stp/cuda/cuda_rank_backend.h"
#include "stp/cuda/cuda_stream.h"
#include "stp/cuda/paced.h"

namespace stp {
namespace {

// What the kernels of a communicator count, in memory of the host that they write to.
class LateCounter {
 public:
  LateCounter() {
    void* block = nullptr;
    STP_CUDA(cudaHostAlloc(&block, sizeof *ns_, cudaHostAllocMapped | cudaHostAllocPortable));
    ns_ = static_cast<unsigned long long*>(block);
    *ns_ = 0;
  }
  LateCounter(const LateCounter&) = delete;
  LateCounter& operator=(const LateCounter&) = delete;
  ~LateCounter() { cudaFreeHost(ns_); }

  [[nodiscard]] unsigned long long* ns() const { return ns_; }
  [[nodiscard]] double seconds() const {
    return 1e-9 * static_cast<double>(*static_cast<const volatile unsigned long long*>(ns_));
  }

 private:
  unsigned long long* ns_ = nullptr;
};

class PacedCudaCommunicator : public PacedCommunicator {
 public:
  PacedCudaCommunicator(CudaDevice& device, const Replay& replay, const std::vector<int>& members, int index)
      : PacedCommunicator(replay, members, index, launch::kPacedPiece), device_(device) {
    device.run().make_current();
    late_ = std::make_shared<LateCounter>();
  }

  [[nodiscard]] std::optional<double> late_s() const override { return late_->seconds(); }

 private:
  void enter(Stream& stream, PacedCall call) override {
    cuda_stream(stream).enqueue(
        [&device = device_, counter = counter(), late = late_, call = std::move(call)](cudaStream_t on) {
          call.refuse_endless(device.run().guard);
          const auto& [kind, reduce, in, out] = call.part;
          launch::PacedMove move{.pace = call.pace, .kind = kind, .size = call.size, .index = call.index};
          if (in) move.in = data<std::byte>(in);
          if (out) move.out = data<std::byte>(out);
          move.type = out ? out.type : in.type;
          move.late_ns = late->ns();
          const size_t bytes = launch::paced_link_bytes(call.pace);
          move.link = device.take(on, bytes);
          launch::paced(on, move);
          device.give_back(on, move.link, bytes);
          counter->count(kind, call.part.sent_bytes());
        });
  }

  CudaDevice& device_;
  std::shared_ptr<LateCounter> late_;
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

std::unique_ptr<Backend> make_cuda_replay_backend(const BackendOptions& options, const Replay& replay,
                                                  int gpu) {
  return std::make_unique<CudaReplayBackend>(options, replay, gpu);
}

}  // namespace stp
