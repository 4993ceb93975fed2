#include "stp/runtime/host_copies.h"

#include <utility>

#include "stp/device/kernels.h"

namespace stp {
namespace {

Tensor& tensor_of(RankState& rank, const Op& op, const OffloadedTensor& each) {
  return rank.saved[{each.unit, op.chunk, each.layer, op.microbatch}][each.tensor.which];
}

// Copies `from` to a new tensor of the same shape.
Tensor copy(Device& device, Stream& stream, MemoryKind kind, const Tensor& from) {
  Tensor to = device.allocate(stream, kind, from.type, from.rows, from.columns);
  device.kernels().issue(stream, kernel::Copy{.from = from, .to = to});
  return to;
}

}  // namespace

void offload(RankState& rank, OpId id, const Op& op, std::span<const OffloadedTensor> tensors) {
  std::vector<Tensor>&leaving = rank.leaving[id], &on_host = rank.on_host[{op.chunk, op.microbatch}];
  for (const OffloadedTensor& each : tensors) {
    leaving.push_back(std::exchange(tensor_of(rank, op, each), {}));
    on_host.push_back(copy(rank.device, *rank.d2h, MemoryKind::host, leaving.back()));
  }
}

void free_offloaded(RankState& rank, Stream& stream, OpId offload) {
  const auto node = rank.leaving.extract(offload);
  for (Tensor& tensor : node.mapped()) rank.device.release(stream, tensor);
}

void reload(RankState& rank, Stream& stream, const Op& op, std::span<const OffloadedTensor> tensors) {
  std::vector<Tensor> on_host = std::move(rank.on_host.extract({op.chunk, op.microbatch}).mapped());
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensor_of(rank, op, tensors[i]) = copy(rank.device, stream, MemoryKind::saved, on_host[i]);
    rank.device.release(stream, on_host[i]);
  }
}

}  // namespace stp
