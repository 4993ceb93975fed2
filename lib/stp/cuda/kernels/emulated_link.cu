// Emulated links: as many blocks as NCCL's kernels use move the bytes and wait for the time.
#include "stp/cuda/kernels/emulated_link.h"

#include <algorithm>

#include "stp/cuda/kernels/device.cuh"
#include "stp/cuda/kernels/device_clock.cuh"

namespace stp::cuda {
namespace {

constexpr int kLinkThreads = 512;
/// Shared memory of a block of NCCL's kernels on sm_80 and sm_90 (its src/include/device.h): 16 bytes for
/// each lane of a warp and of 8 loads, and one more, for each of 20 warps. An emulated call therefore leaves
/// a GEMM's blocks as little as a real call.
constexpr size_t kNcclShared = (8 * 32 + 1) * 16 * 20;

/// Copies with all threads of the block; the ranges must not overlap. Uses whole words if both ends are
/// aligned, with several in flight: with one, a block is slower than a link.
__device__ void copy(unsigned char* to, const unsigned char* from, int64_t bytes) {
  constexpr int kAtOnce = 8;
  int64_t words = 0;
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16 == 0) {
    words = bytes / 16;
    const int64_t all = blockDim.x;
    int64_t i = threadIdx.x;
    for (; i + (kAtOnce - 1) * all < words; i += kAtOnce * all) {
      uint4 loaded[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) loaded[k] = load_16(from + (i + k * all) * 16);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) store_16(to + (i + k * all) * 16, loaded[k]);
    }
    for (; i < words; i += all) store_16(to + i * 16, load_16(from + i * 16));
  }
  for (int64_t i = words * 16 + threadIdx.x; i < bytes; i += blockDim.x) to[i] = from[i];
}

template <typename T>
__device__ void fill_received(void* to, int64_t bytes) {
  auto* const numbers = static_cast<T*>(to);
  for (int64_t i = threadIdx.x; i < bytes / static_cast<int64_t>(sizeof(T)); i += blockDim.x)
    numbers[i] = from_float<T>(received_number(i));
}

__device__ void fill_received(DType type, void* to, int64_t bytes) {
  switch (type) {
    case DType::f32:
      return fill_received<float>(to, bytes);
    case DType::f64:
      return fill_received<double>(to, bytes);
    case DType::bf16:
      return fill_received<bf16>(to, bytes);
    case DType::i32:
      break;
  }
  for (int64_t i = threadIdx.x; i < bytes; i += blockDim.x) static_cast<unsigned char*>(to)[i] = 0;
}

/// Waits for all threads of the block and for the due time.
__device__ void wait_until(uint64_t start, double due_ns) {
  __syncthreads();
  if (threadIdx.x == 0) {
    const auto due = start + static_cast<uint64_t>(ceil(due_ns));
    while (nanoseconds() < due) continue;
  }
  __syncthreads();
}

/// Moves the bytes [begin, end) of the whole through the link buffer.
__device__ void move_piece(const EmulatedMove& move, unsigned char* buffer, int64_t begin, int64_t end) {
  const auto* const in = static_cast<const unsigned char*>(move.in);
  auto* const out = static_cast<unsigned char*>(move.out);
  const int64_t share = move.link.bytes / move.size;
  switch (move.kind) {
    case CallKind::all_reduce: {
      copy(buffer, in + begin, end - begin);
      __syncthreads();
      const int64_t again = link_bytes_again(end - begin, move.size) / 16 * 16;  // whole words
      unsigned char* const other = buffer + kLinkPiece;
      copy(other, buffer, again);
      __syncthreads();
      copy(out + begin, other, again);
      copy(out + begin + again, buffer + again, end - begin - again);
      break;
    }
    case CallKind::all_gather:
      for (int64_t at = begin; at < end;) {
        const int64_t count = min(end, (at / share + 1) * share) - at;
        copy(buffer + (at - begin), in + at % share, count);
        at += count;
      }
      __syncthreads();
      copy(out + begin, buffer, end - begin);
      break;
    case CallKind::reduce_scatter: {
      copy(buffer, in + begin, end - begin);
      const int64_t mine = move.index * share;
      const int64_t first = max(begin, mine), last = min(end, mine + share);
      if (first < last) copy(out + (first - mine), in + first, last - first);
      break;
    }
    case CallKind::all_to_all:  // split into transfers
    case CallKind::transfer:
      if (in != nullptr) copy(buffer, in + begin, end - begin);
      if (in != nullptr && out != nullptr) __syncthreads();
      if (out != nullptr) copy(out + begin, buffer, end - begin);
      break;
  }
}

__global__ void __launch_bounds__(kLinkThreads)
    emulated_link_kernel(const __grid_constant__ EmulatedMove move) {
  __shared__ uint64_t began;
  if (threadIdx.x == 0) began = nanoseconds();
  __syncthreads();
  const uint64_t start = began;
  const int cta = static_cast<int>(blockIdx.x);
  const LinkEmulation& link = move.link;
  auto* const buffer = static_cast<unsigned char*>(move.buffers) + cta * 2 * kLinkPiece;
  if (move.in == nullptr) fill_received(move.type, buffer, min(kLinkPiece, link.span));
  __syncthreads();
  const int64_t pieces = link.pieces(cta);
  for (int64_t i = 0; i < pieces; ++i) {
    move_piece(move, buffer, link.piece_begin(cta, i), link.piece_end(cta, i));
    if (i + 1 < pieces) wait_until(start, link.due_ns(cta, i));
  }
  wait_until(start, link.total_ns());
}

}  // namespace

size_t link_buffer_bytes(const LinkEmulation& link) {
  return static_cast<size_t>(link.ctas * 2 * kLinkPiece);
}

void emulate_link(Stream& stream, const EmulatedMove& move) {
  const size_t shared = std::min(kNcclShared, shared_limit(address_of(emulated_link_kernel)));
  start(stream, emulated_link_kernel, {narrow(move.link.ctas), kLinkThreads, shared}, move);
}

}  // namespace stp::cuda
