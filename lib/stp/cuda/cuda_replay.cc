#include "stp/cuda/cuda_replay.h"

#include <utility>

#include "stp/cuda/kernels/emulated_link.h"

namespace stp::cuda {
namespace {

class EmulatedCudaGroup : public EmulatedGroup {
 public:
  EmulatedCudaGroup(CudaDevice& device, std::string name, const Replay& replay,
                    const std::vector<int>& members)
      : EmulatedGroup(std::move(name), replay, members, kLinkPiece), device_(device) {}

  EmulatedUse take_use() override {
    for (size_t i = 0; i < link_bytes_.size(); ++i)
      use()->count(1e-9 * static_cast<double>(late_ns(i)), link_bytes_[i]);
    link_bytes_.clear();
    return EmulatedGroup::take_use();
  }

 private:
  static constexpr size_t kBlock = 512;

  void carry_out(EmulatedCall call) override {
    call.refuse_endless(device_.run().guard);
    const auto& [stream, in, out] = call.part;
    const size_t bytes = link_buffer_bytes(call.link);
    unsigned long long& late = late_ns(link_bytes_.size());
    late = 0;
    link_bytes_.push_back(bytes);
    emulate_link(*stream, {.link = call.link,
                           .kind = call.kind,
                           .size = call.size,
                           .index = call.index,
                           .type = out ? out.type : in.type,
                           .in = address(in),
                           .out = address(out),
                           .buffers = device_.scratch(*stream, bytes),
                           .late_ns = &late});
  }

  // By how much the i-th call was late that has not been counted yet: the GPU writes it.
  unsigned long long& late_ns(size_t i) {
    if (i / kBlock == late_ns_.size())
      late_ns_.push_back(
          static_cast<unsigned long long*>(device_.run().pinned(kBlock * sizeof(unsigned long long))));
    return late_ns_[i / kBlock][i % kBlock];
  }

  CudaDevice& device_;
  std::vector<size_t> link_bytes_;  // of calls that are not counted yet
  std::vector<unsigned long long*> late_ns_;
};

}  // namespace

std::unique_ptr<EmulatedGroup> make_emulated_group(CudaDevice& device, std::string name, const Replay& replay,
                                                   const std::vector<int>& members) {
  return std::make_unique<EmulatedCudaGroup>(device, std::move(name), replay, members);
}

}  // namespace stp::cuda
