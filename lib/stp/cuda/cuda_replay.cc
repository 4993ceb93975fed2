#include <algorithm>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "stp/cuda/cuda_event.h"
#include "stp/cuda/cuda_group.h"
#include "stp/cuda/cuda_stream.h"
#include "stp/cuda/kernels/emulated_link.h"

namespace stp::cuda {
namespace {

class EmulatedCudaGroup : public EmulatedGroup {
 public:
  EmulatedCudaGroup(CudaDevice& device, std::string name, const Replay& replay,
                    const std::vector<int>& members)
      : EmulatedGroup(std::move(name), replay, members, kLinkPiece), device_(device) {}

  EmulatedUse take_use() override {
    count_finished();
    return EmulatedGroup::take_use();
  }

 private:
  /// A call that is not counted yet.
  struct TimedCall {
    EventRef ready;  // behind all that it waits for
    std::shared_ptr<CudaEvent> done;
    double link_s;
    size_t link_bytes;
  };

  // At each call, so that few events are held.
  void count_finished() {
    for (; !calls_.empty() && calls_.front().done->passed(); calls_.pop_front()) {
      const TimedCall& call = calls_.front();
      const double took_s = call.done->seconds() - call.ready->seconds();
      use()->count(std::max(0.0, took_s - call.link_s), call.link_bytes);
    }
  }

  void carry_out(EmulatedCall call) override {
    call.refuse_endless(device_.run().guard);
    count_finished();
    Stream& stream = *call.part.stream;
    const Tensor &in = call.part.in, &out = call.part.out;
    const size_t bytes = link_buffer_bytes(call.link);
    std::byte* const buffers = device_.scratch(stream, bytes);
    cuda_stream(stream).flush();  // else the event would be that of all that is collected, the call too
    const EventRef ready = stream.record();
    emulate_link(stream, {.link = call.link,
                          .kind = call.kind,
                          .size = call.size,
                          .index = call.index,
                          .type = out ? out.type : in.type,
                          .in = address(in),
                          .out = address(out),
                          .buffers = buffers});
    cuda_stream(stream).flush();  // at the call, as NCCL's kernels are given
    calls_.push_back(
        {ready, std::static_pointer_cast<CudaEvent>(stream.record()), 1e-9 * call.link.total_ns(), bytes});
  }

  CudaDevice& device_;
  std::deque<TimedCall> calls_;
};

}  // namespace

double measured_cta_rate(CudaDevice& device) {
  constexpr int64_t kBytes = int64_t{2} << 20;
  const auto stream = device.make_stream("link", StreamPriority::communication);
  const LinkEmulation link = emulate_links(kBytes, {}, 1, kLinkPiece);
  std::byte* const memory = device.scratch(*stream, 2 * kBytes + link_buffer_bytes(link));
  const auto move = [&] {
    emulate_link(*stream, {.link = link,
                           .kind = CallKind::transfer,
                           .size = 2,
                           .type = DType::f32,
                           .in = memory,
                           .out = memory + kBytes,
                           .buffers = memory + 2 * kBytes});
    return stream->record();
  };
  const EventRef begin = move(), end = move();  // the first loads the kernel
  cuda_stream(*stream).synchronize();
  return 2 * static_cast<double>(kBytes) / (end->seconds() - begin->seconds());  // into the buffer, and out
}

std::unique_ptr<EmulatedGroup> make_emulated_group(CudaDevice& device, std::string name, const Replay& replay,
                                                   const std::vector<int>& members) {
  return std::make_unique<EmulatedCudaGroup>(device, std::move(name), replay, members);
}

}  // namespace stp::cuda
