#include "stp/cpu/cpu_replay.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "stp/cpu/cpu_stream.h"
#include "stp/device/bfloat16.h"
#include "stp/emulation/link_emulation.h"

namespace stp::cpu {
namespace {

constexpr int64_t kLinkPiece = int64_t{1} << 20;

template <typename T>
std::vector<std::byte> received_numbers() {
  std::vector<std::byte> buffer(kLinkPiece);
  auto* numbers = reinterpret_cast<T*>(buffer.data());
  for (size_t i = 0; i < buffer.size() / sizeof(T); ++i)
    numbers[i] = static_cast<T>(received_number(static_cast<int64_t>(i)));
  return buffer;
}

const std::vector<std::byte>& received_numbers(DType type) {
  static const std::array by_type{received_numbers<float>(), received_numbers<double>(),
                                  received_numbers<Bfloat16>(), std::vector<std::byte>(kLinkPiece)};
  return by_type[static_cast<size_t>(type)];
}

// Sleeps, but polls at the end, because a sleeping thread wakes too late. Returns the delay in seconds.
double wait_until(const RunGuard& guard, std::chrono::steady_clock::time_point start, double due_ns) {
  constexpr std::chrono::milliseconds kPollInterval{20};
  constexpr std::chrono::microseconds kAwake{200};
  const auto due = start + std::chrono::nanoseconds(std::llround(std::ceil(due_ns)));
  for (;;) {
    guard.check();
    const auto now = std::chrono::steady_clock::now();
    if (now >= due) return std::chrono::duration<double>(now - due).count();
    if (due - now > kAwake) {
      std::this_thread::sleep_until(std::min(due - kAwake, now + kPollInterval));
    } else {
      std::this_thread::yield();
    }
  }
}

// Passes bytes through the link buffers a second time, for which there are two buffers.
void pass_on(std::vector<std::byte>& link, std::vector<std::byte>& other, int64_t bytes) {
  other.resize(std::max(other.size(), static_cast<size_t>(bytes)));
  std::copy_n(link.begin(), bytes, other.begin());
  std::copy_n(other.begin(), bytes, link.begin());
}

// `in`, `out`: the call's tensors as they were when the host gave it.
void carry_out(const RunGuard& guard, const EmulatedCall& call, const TensorView& in, const TensorView& out,
               EmulatedUseCounter& use) {
  const auto start = std::chrono::steady_clock::now();
  const LinkEmulation& emulation = call.link;
  std::vector<std::byte> link(std::min(emulation.bytes, kLinkPiece)), other;
  // The positions of a piece in the input and in the output; a member has one share of all data.
  const int64_t share = emulation.bytes / call.size, mine = call.index * share;
  const std::byte* from = address(in);
  std::byte* to = address(out);
  for (int64_t i = 0; i < emulation.pieces(0); ++i) {
    const int64_t begin = emulation.piece_begin(0, i), end = emulation.piece_end(0, i);
    switch (call.kind) {
      case CallKind::all_reduce:
        std::copy(from + begin, from + end, link.begin());
        pass_on(link, other, link_bytes_again(end - begin, call.size));
        std::copy_n(link.begin(), end - begin, to + begin);
        break;
      case CallKind::all_gather:
        for (int64_t at = begin; at < end;) {
          const int64_t count = std::min(end, (at / share + 1) * share) - at;
          std::copy_n(from + at % share, count, link.begin());
          std::copy_n(link.begin(), count, to + at);
          at += count;
        }
        break;
      case CallKind::reduce_scatter: {
        std::copy(from + begin, from + end, link.begin());
        const int64_t first = std::max(begin, mine), last = std::min(end, mine + share);
        if (first < last) std::copy(from + first, from + last, to + first - mine);
        break;
      }
      case CallKind::all_to_all:  // split into transfers
      case CallKind::transfer:
        if (from != nullptr) std::copy(from + begin, from + end, link.begin());
        if (to != nullptr)
          std::copy_n(from != nullptr ? link.begin() : received_numbers(out.type).begin(), end - begin,
                      to + begin);
        break;
    }
    wait_until(guard, start, emulation.due_ns(0, i));
  }
  const double late_s = wait_until(guard, start, emulation.total_ns());
  use.count(late_s, link.size() + other.size());
}

class EmulatedCpuGroup : public EmulatedGroup {
 public:
  using EmulatedGroup::EmulatedGroup;

 private:
  void carry_out(EmulatedCall call) override {
    CpuStream& worker = cpu_stream(*call.part.stream);
    const TensorView in = call.part.in, out = call.part.out;
    worker.enqueue_waiting([&worker, use = use(), call = std::move(call), in, out] {
      const RunGuard::Work work(worker.run().guard);  // no deadline expires during a call
      call.refuse_endless(worker.run().guard);
      cpu::carry_out(worker.run().guard, call, in, out, *use);
    });
  }
};

}  // namespace

std::unique_ptr<Group> make_emulated_group(std::string name, const Replay& replay,
                                           const std::vector<int>& members) {
  Replay one = replay;
  one.collective_ctas = one.transfer_ctas = one.most_ctas = 1;  // one thread copies
  return std::make_unique<EmulatedCpuGroup>(std::move(name), one, members, kLinkPiece);
}

}  // namespace stp::cpu
