// Communication with peers that do not exist: one rank of a grid runs alone, with its real kernels, and each
// call that would need other ranks takes the time that their links are said to take. Plain arithmetic; what
// copies the bytes in that time is each backend's group.
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

/// What a call takes where nothing else uses the links.
struct CallTime {
  double latency_s = 0;   // before the first byte
  double transfer_s = 0;  // from the first to the last
};

/// Of `bytes` in a group of world ranks. Bytes as nccl-tests count them: of an all-reduce or a transfer those
/// of the tensor, of an all-gather those of its output, of a reduce-scatter those of its input.
using CallTimes = std::function<CallTime(CallKind kind, double bytes, const std::vector<int>& members)>;

/// One rank of a world that has no others.
struct Replay {
  int rank = 0;
  CallTimes times;
  /// Blocks of threads that a collective takes on the device, and a transfer, as NCCL's do (CUDA alone).
  int collective_ctas = 16, transfer_ctas = 2;
};

/// How much of a call's bytes goes through a rank's link buffers: that share. Beside it, what it takes from
/// its input and leaves in its output.
double link_share(CallKind kind, int ranks);

/// Of `bytes` that an all-reduce takes through the link buffers: how many go through them once more. A ring's
/// link_share is 2 (n − 1) / n: all of the bytes once, and the shares of n − 2 of n members again. 2 ranks or
/// more.
STP_HOST_DEVICE constexpr int64_t link_bytes_again(int64_t bytes, int ranks) {
  return bytes * (ranks - 2) / ranks;
}

/// A call's bytes over CTAs, and when each may have moved what. Every CTA moves one span of bytes, in pieces,
/// at one even rate: it is done with its last piece, and so is the call, latency + transfer after it began,
/// and never sooner.
struct LinkEmulation {
  int64_t bytes = 0;
  int64_t span = 0;   // bytes of a CTA; the last may have fewer
  int64_t piece = 0;  // bytes that a CTA moves at a time; the last may have fewer
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
  /// Nanoseconds after the CTA began, before which it may not be done with that piece.
  [[nodiscard]] STP_HOST_DEVICE double due_ns(int cta, int64_t index) const {
    const double share =
        static_cast<double>(piece_end(cta, index) - begin(cta)) / static_cast<double>(end(cta) - begin(cta));
    return latency_ns + transfer_ns * share;
  }
  /// The whole call's.
  [[nodiscard]] STP_HOST_DEVICE double total_ns() const { return latency_ns + transfer_ns; }

 private:
  STP_HOST_DEVICE static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
};

/// The `index`-th of the numbers that are received: like activations, so that what follows computes with
/// ordinary numbers.
STP_HOST_DEVICE inline float received_number(int64_t index) {
  constexpr int kPeriod = 251, kStep = 89;
  return (static_cast<float>(index * kStep % kPeriod) / kPeriod - 0.5F) / 64;
}

/// `bytes` over at most `ctas`, none without work but where there are no bytes at all: then one CTA of no
/// piece. Spans and pieces are multiples of 16 bytes. Throws std::logic_error for what cannot be: negative
/// bytes, times that are negative or endless, no CTA, no piece.
LinkEmulation emulate_links(int64_t bytes, const CallTime& time, int ctas, int64_t piece);

}  // namespace stp
