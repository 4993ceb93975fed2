#include "stp/cpu/paced_communicator.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "stp/backend/bfloat16.h"
#include "stp/backend/traffic_counter.h"
#include "stp/cpu/cpu_memory.h"
#include "stp/cpu/cpu_stream.h"
#include "stp/cpu/local_call.h"

namespace stp {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;

// Like activations, so that what follows computes with ordinary numbers.
template <typename T>
std::vector<std::byte> small_numbers() {
  constexpr size_t kPeriod = 251;
  std::vector<std::byte> buffer(kPiece);
  auto* numbers = reinterpret_cast<T*>(buffer.data());
  for (size_t i = 0; i < buffer.size() / sizeof(T); ++i)
    numbers[i] = static_cast<T>((static_cast<float>(i * 89 % kPeriod) / kPeriod - 0.5F) / 64);
  return buffer;
}

const std::vector<std::byte>& small_numbers(DType type) {
  static const std::vector<std::byte> f32 = small_numbers<float>(), f64 = small_numbers<double>(),
                                      bf16 = small_numbers<Bfloat16>(), i32(kPiece);
  switch (type) {
    case DType::f32:
      return f32;
    case DType::f64:
      return f64;
    case DType::bf16:
      return bf16;
    case DType::i32:
      break;
  }
  return i32;
}

class PacedCommunicator : public Communicator {
 public:
  PacedCommunicator(Replay replay, std::vector<int> members, int index)
      : replay_(std::move(replay)), members_(std::move(members)), index_(index) {}

  [[nodiscard]] int size() const override { return static_cast<int>(members_.size()); }
  [[nodiscard]] int index() const override { return index_; }

  void all_reduce(Stream& stream, Reduce, const Tensor& tensor) override {
    if (size() > 1) enqueue(stream, CallKind::all_reduce, tensor, tensor);
  }
  void all_gather(Stream& stream, const Tensor& in, const Tensor& out) override {
    check(in.columns == out.columns && in.type == out.type && out.rows == size() * in.rows);
    enqueue(stream, CallKind::all_gather, in, out);
  }
  void reduce_scatter(Stream& stream, const Tensor& in, const Tensor& out) override {
    check(in.columns == out.columns && in.type == out.type && in.rows == size() * out.rows);
    enqueue(stream, CallKind::reduce_scatter, in, out);
  }
  void send(Stream& stream, const Tensor& tensor, int to) override {
    check(to != index_ && to >= 0 && to < size());
    enqueue(stream, CallKind::send, tensor, {});
  }
  void receive(Stream& stream, const Tensor& tensor, int from) override {
    check(from != index_ && from >= 0 && from < size());
    enqueue(stream, CallKind::receive, {}, tensor);
  }
  [[nodiscard]] Traffic traffic() const override { return counter_->traffic(); }

 private:
  static void check(bool fits) {
    if (!fits) throw std::logic_error("a paced call whose tensors or peer do not fit");
  }

  void enqueue(Stream& stream, CallKind kind, const Tensor& in, const Tensor& out) {
    const bool whole_is_out = kind == CallKind::all_gather || kind == CallKind::receive;
    const auto bytes = static_cast<int64_t>((whole_is_out ? out : in).bytes());
    const CallTime time = replay_.times(kind, static_cast<double>(bytes), members_);
    const Pace pace = make_pace(bytes, time, 1, kPiece);
    CpuStream& worker = cpu_stream(stream);
    worker.enqueue([counter = counter_, &worker, kind, in, out, pace, size = size(), index = index_] {
      refuse_endless(worker.run().guard, kind, in, out, pace);
      run(worker.run().guard, kind, in, out, pace, size, index);
      counter->count(kind, in ? static_cast<int64_t>(in.bytes()) : 0);
    });
  }

  // Nothing would move meanwhile.
  static void refuse_endless(const RunGuard& guard, CallKind kind, const Tensor& in, const Tensor& out,
                             const Pace& pace) {
    const std::chrono::duration<double, std::nano> takes(pace.latency_ns + pace.transfer_ns);
    if (takes <= guard.deadline()) return;
    std::ostringstream text;
    text << CallPart{kind, Reduce::sum, in, out}.text() << " takes "
         << std::chrono::duration<double>(takes).count()
         << " s at the pace of its links, more than the run's deadline of " << guard.deadline().count()
         << " s";
    throw std::runtime_error(text.str());
  }

  static void run(const RunGuard& guard, CallKind kind, const Tensor& in, const Tensor& out, const Pace& pace,
                  int size, int index) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::byte> link(std::min(pace.bytes, kPiece));
    // Where a piece of the whole lies in the input, and where in the output; a member has one share of it.
    const int64_t share = pace.bytes / size;
    const std::byte* from = in ? data<std::byte>(in) : nullptr;
    std::byte* to = out ? data<std::byte>(out) : nullptr;
    for (int64_t i = 0; i < pace.pieces(0); ++i) {
      const int64_t begin = pace.piece_begin(0, i), end = pace.piece_end(0, i);
      switch (kind) {
        case CallKind::all_reduce:
          std::copy(from + begin, from + end, link.begin());
          pass_on(link,
                  static_cast<int64_t>((link_share(kind, size) - 1) * static_cast<double>(end - begin)));
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
          const int64_t first = std::max(begin, index * share), last = std::min(end, (index + 1) * share);
          if (first < last) std::copy(from + first, from + last, to + first - index * share);
          break;
        }
        case CallKind::send:
          std::copy(from + begin, from + end, link.begin());
          break;
        case CallKind::receive:
          std::copy_n(small_numbers(out.type).begin(), end - begin, to + begin);
          break;
      }
      wait_until(guard, start, pace.due_ns(0, i));
    }
    wait_until(guard, start, pace.latency_ns + pace.transfer_ns);
  }

  // What more than one round of a ring takes through the link buffers.
  static void pass_on(std::vector<std::byte>& link, int64_t bytes) {
    std::vector<std::byte> other(static_cast<size_t>(std::max<int64_t>(bytes, 0)));
    std::copy_n(link.begin(), other.size(), other.begin());
    std::copy_n(other.begin(), other.size(), link.begin());
  }

  // Asleep but for the end, since a thread wakes up too late.
  static void wait_until(const RunGuard& guard, std::chrono::steady_clock::time_point start, double due_ns) {
    constexpr std::chrono::milliseconds kLook{20};
    constexpr std::chrono::microseconds kAwake{200};
    const auto due = start + std::chrono::nanoseconds(std::llround(std::ceil(due_ns)));
    for (;;) {
      guard.check();
      const auto now = std::chrono::steady_clock::now();
      if (now >= due) return;
      if (due - now > kAwake)
        std::this_thread::sleep_until(std::min(due - kAwake, now + kLook));
      else
        std::this_thread::yield();
    }
  }

  const Replay replay_;
  const std::vector<int> members_;
  const int index_;
  // What a task needs outlives the communicator's own end.
  std::shared_ptr<TrafficCounter> counter_ = std::make_shared<TrafficCounter>();
};

}  // namespace

std::unique_ptr<Communicator> make_paced_cpu_communicator(const Replay& replay,
                                                          const std::vector<int>& members, int index) {
  return std::make_unique<PacedCommunicator>(replay, members, index);
}

}  // namespace stp
