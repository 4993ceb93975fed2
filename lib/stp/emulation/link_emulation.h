// Communication with peers that do not exist: one rank of a grid runs alone, with its real kernels. Each call
// that would need other ranks takes the time of their links. This file is plain arithmetic; each backend's
// group copies the bytes in that time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "stp/device/group.h"

// The kernel that emulates links does the same arithmetic.
#if defined(__CUDACC__)
#define STP_HOST_DEVICE __host__ __device__
#else
#define STP_HOST_DEVICE
#endif

namespace stp {

/// The time of a call if nothing else uses the links.
struct CallTime {
  double latency_s = 0;   // before the first byte
  double transfer_s = 0;  // from the first byte to the last
};

/// Returns the time of a call of `bytes` (as in Call::bytes()) in a group of world ranks.
using CallTimes = std::function<CallTime(CallKind kind, double bytes, const std::vector<int>& members)>;

/// CTAs of a transfer over NCCL by default (lib/stp/cuda/nccl): few, because a receive that waits for its
/// peer holds them.
inline constexpr int kLinkCtas = 4;

/// One rank of a world whose other ranks do not exist.
struct Replay {
  int rank = 0;
  CallTimes times;
  /// Thread blocks of a collective and of a transfer on the device, as NCCL's (CUDA only). A call gets more,
  /// up to `most_ctas`, if each would have to copy more than `cta_bytes_per_s` to keep its link's time.
  int collective_ctas = 16, transfer_ctas = kLinkCtas, most_ctas = 64;
  double cta_bytes_per_s = 32e9;  // an estimate: 64 KiB in flight, 2 µs until they arrive
};

/// The part of an all-reduce's `bytes` that passes through the link buffers a second time. In a ring
/// 2 (n − 1) / n of them pass: all bytes once, and the shares of n − 2 of n members again. At least 2 ranks.
STP_HOST_DEVICE constexpr int64_t link_bytes_again(int64_t bytes, int ranks) {
  return bytes * (ranks - 2) / ranks;
}

/// The number of CTAs of a call of `bytes` (as in Call::bytes()) among `ranks` ranks.
int link_ctas(const Replay& replay, CallKind kind, int64_t bytes, const CallTime& time, int ranks);

/// The division of a call's bytes over CTAs, and each piece's due time. Every CTA moves one span of bytes, in
/// pieces, at a constant rate. It ends its last piece, and so the call, exactly latency + transfer after its
/// start, or later.
struct LinkEmulation {
  int64_t bytes = 0;
  int64_t span = 0;   // bytes of a CTA; the last CTA may have fewer
  int64_t piece = 0;  // bytes that a CTA moves at a time; the last piece may have fewer
  int ctas = 0;
  double latency_ns = 0, transfer_ns = 0;

  [[nodiscard]] STP_HOST_DEVICE int64_t begin(int cta) const { return least(bytes, cta * span); }
  [[nodiscard]] STP_HOST_DEVICE int64_t end(int cta) const { return least(bytes, (cta + 1) * span); }
  [[nodiscard]] STP_HOST_DEVICE int64_t pieces(int cta) const {
    return (end(cta) - begin(cta) + piece - 1) / piece;
  }
  [[nodiscard]] STP_HOST_DEVICE int64_t piece_begin(int cta, int64_t index) const {
    return begin(cta) + index * piece;
  }
  [[nodiscard]] STP_HOST_DEVICE int64_t piece_end(int cta, int64_t index) const {
    return least(end(cta), begin(cta) + (index + 1) * piece);
  }
  /// The earliest end of a piece, in nanoseconds after the CTA's start.
  [[nodiscard]] STP_HOST_DEVICE double due_ns(int cta, int64_t index) const {
    const double share =
        static_cast<double>(piece_end(cta, index) - begin(cta)) / static_cast<double>(end(cta) - begin(cta));
    return latency_ns + transfer_ns * share;
  }
  /// The time of the whole call.
  [[nodiscard]] STP_HOST_DEVICE double total_ns() const { return latency_ns + transfer_ns; }

 private:
  STP_HOST_DEVICE static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
};

/// The received number at `index`. Its size is that of activations, so that later ops compute with ordinary
/// numbers.
STP_HOST_DEVICE inline float received_number(int64_t index) {
  constexpr int kPeriod = 251, kStep = 89;
  return (static_cast<float>(index * kStep % kPeriod) / kPeriod - 0.5F) / 64;
}

/// Divides `bytes` over at most `ctas` CTAs that all have work; without bytes, one CTA without pieces. Spans
/// and pieces are multiples of 16 bytes. Throws std::logic_error for negative bytes, negative or infinite
/// times, no CTAs or empty pieces.
LinkEmulation emulate_links(int64_t bytes, const CallTime& time, int ctas, int64_t piece);

}  // namespace stp
