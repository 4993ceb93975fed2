#include "stp/cuda/cuda_group.h"

#include <numeric>
#include <stdexcept>
#include <utility>

#include "stp/cuda/cuda_check.h"
#include "stp/cuda/cuda_stream.h"
#include "stp/cuda/kernels/local_reduce.h"

namespace stp::cuda {
namespace {

class LocalGroup : public Group {
 public:
  using Group::Group;

 private:
  void carry_out(const Call& call) override {
    Stream& on = *call.parts.front().stream;
    for (const Part& part : call.parts)
      if (part.stream != &on) on.wait(part.stream->fence());
    exchange(on, call);
    for (const Part& part : call.parts)
      if (part.stream != &on) part.stream->wait(on.fence());
  }

  static void exchange(Stream& on, const Call& call) {
    const Tensor& in = call.parts.front().in;
    const auto copy = [&](const Tensor& from, const Tensor& to) {
      if (from.elements() > 0 && address(from) != address(to))  // else its own piece, in place
        cuda_stream(on).give([&](cudaStream_t stream) {
          STP_CUDA(
              cudaMemcpyAsync(address(to), address(from), from.bytes(), cudaMemcpyDeviceToDevice, stream));
        });
    };
    const int size = static_cast<int>(call.parts.size());
    const bool gathers = call.kind == CallKind::all_gather;
    if (gathers || call.kind == CallKind::all_to_all) {
      for (int from = 0; from < size; ++from)
        for (int to = 0; to < size; ++to)
          copy(gathers ? call.parts[from].in : call.parts[from].sent_to(to, size),
               call.parts[to].received_from(from, size));
      return;
    }
    if (call.kind == CallKind::transfer) {
      for (int from = 0; from < size; ++from)
        if (const Tensor& out = call.parts[(from + 1) % size].out; out) copy(call.parts[from].in, out);
      return;
    }
    LocalBuffers buffers;
    for (const Part& part : call.parts) {
      buffers.in[buffers.members] = address(part.in);
      buffers.out[buffers.members++] = address(part.out);
    }
    if (call.kind == CallKind::all_reduce)
      return local_all_reduce(on, call.reduce, in.type, buffers, in.elements());
    local_reduce_scatter(on, call.reduce, in.type, buffers, call.parts.front().out.elements());
  }
};

}  // namespace

std::unique_ptr<Group> make_local_group(std::string name, const std::vector<int>& members) {
  if (members.size() > kMostLocalMembers)
    throw std::logic_error("group " + name + " has " + std::to_string(members.size()) +
                           " ranks on one GPU, which takes " + std::to_string(kMostLocalMembers));
  std::vector<int> local(members.size());
  std::iota(local.begin(), local.end(), 0);
  return std::make_unique<LocalGroup>(std::move(name), members, std::move(local));
}

}  // namespace stp::cuda
