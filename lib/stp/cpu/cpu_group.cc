#include "stp/cpu/cpu_group.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>

#include "stp/cpu/cpu_stream.h"
#include "stp/device/bfloat16.h"
#include "stp/device/element_type.h"

namespace stp::cpu {
namespace {

/// Elements, or bytes of a copy, that a thread works off at a time.
constexpr size_t kPiece = size_t{1} << 14;

/// One call, shared by the streams of its parts. When all streams have come to it, the elements are worked
/// off in pieces by whichever threads are awake, so that none waits for a thread that the system has not
/// woken yet; an element's value does not depend on who does it. No stream goes on before all is done, so
/// buffers are there throughout.
class SharedCall {
 public:
  SharedCall(std::string name, const Call& call)
      : name_(std::move(name)), kind_(call.kind), reduce_(call.reduce) {
    for (const Part& part : call.parts) {
      parts_.push_back({address(part.in), address(part.out)});
      const CpuStream& stream = cpu_stream(*part.stream);
      if (std::find(streams_.begin(), streams_.end(), &stream) == streams_.end()) streams_.push_back(&stream);
    }
    come_.assign(streams_.size(), false);
    const Tensor& in = call.parts.front().in;
    type_ = in.type;
    const bool reduces = kind_ == CallKind::all_reduce || kind_ == CallKind::reduce_scatter;
    elements_ = reduces ? static_cast<size_t>(in.elements()) : in.bytes();
    pieces_ = (elements_ + kPiece - 1) / kPiece;
    done_ = pieces_ == 0;
  }

  /// A task of `stream`: comes to the call, does a share of the work, and waits until all is done.
  void join(const CpuStream& stream) {
    std::unique_lock lock(mutex_);
    come_[std::find(streams_.begin(), streams_.end(), &stream) - streams_.begin()] = true;
    if (all_there()) changed_.notify_all();
    RunGuard& guard = stream.run().guard;
    guard.wait(
        lock, changed_, RunGuard::WaitFor::peer, [this] { return all_there(); },
        [&] { return stream.where() + " waits in " + name_ + " for " + missing(); });
    lock.unlock();
    work();
    lock.lock();
    guard.wait(
        lock, changed_, RunGuard::WaitFor::own_work, [this] { return done_; },
        [&] { return stream.where() + " waits for the end of " + name_; });
  }

 private:
  struct Buffers {
    const std::byte* in;
    std::byte* out;
  };

  [[nodiscard]] bool all_there() const { return std::find(come_.begin(), come_.end(), false) == come_.end(); }
  [[nodiscard]] std::string missing() const {
    std::string text;
    for (size_t i = 0; i < streams_.size(); ++i)
      if (!come_[i]) text += (text.empty() ? "rank " : ", rank ") + std::to_string(streams_[i]->rank());
    return text;
  }

  void work() {
    for (size_t piece = next_.fetch_add(1); piece < pieces_; piece = next_.fetch_add(1)) {
      do_range(piece * kPiece, std::min(elements_, (piece + 1) * kPiece));
      if (finished_.fetch_add(1) + 1 == pieces_) {
        {
          const std::lock_guard lock(mutex_);
          done_ = true;
        }
        changed_.notify_all();
      }
    }
  }

  void do_range(size_t begin, size_t end) const {
    switch (kind_) {
      case CallKind::transfer:
        std::copy(parts_.front().in + begin, parts_.front().in + end, parts_.back().out + begin);
        return;
      case CallKind::all_gather:
        for (const Buffers& to : parts_)
          for (size_t from = 0; from < parts_.size(); ++from)
            std::copy(parts_[from].in + begin, parts_[from].in + end, to.out + from * elements_ + begin);
        return;
      case CallKind::all_reduce:
      case CallKind::reduce_scatter:
        with_element<Bfloat16>(type_, "no reduction",
                               [&](auto zero) { reduce_range<decltype(zero)>(begin, end); });
    }
  }

  // Sums of bf16 are rounded once.
  template <typename T>
  void reduce_range(size_t begin, size_t end) const {
    constexpr size_t kSums = 1024;
    using Sum = Wide<T>;
    std::array<Sum, kSums> total;
    for (size_t at = begin; at < end; at += kSums) {
      const size_t count = std::min(kSums, end - at);
      for (size_t part = 0; part < parts_.size(); ++part) {
        const T* in = reinterpret_cast<const T*>(parts_[part].in) + at;
        if (part == 0) {
          std::copy_n(in, count, total.begin());
        } else if (reduce_ == Reduce::sum) {
          for (size_t i = 0; i < count; ++i) total[i] += in[i];
        } else {
          for (size_t i = 0; i < count; ++i) total[i] = std::max<Sum>(total[i], in[i]);
        }
      }
      const auto round_to = [&](std::byte* out, size_t to, size_t from, size_t n) {
        std::transform(total.begin() + from, total.begin() + from + n, reinterpret_cast<T*>(out) + to,
                       [](Sum sum) { return T(sum); });
      };
      if (kind_ == CallKind::all_reduce) {
        for (const Buffers& part : parts_) round_to(part.out, at, 0, count);
        continue;
      }
      const size_t share = elements_ / parts_.size();
      for (size_t i = 0; i < count;) {  // what goes to one member at a time
        const size_t member = (at + i) / share, within = (at + i) % share,
                     run = std::min(count - i, share - within);
        round_to(parts_[member].out, within, i, run);
        i += run;
      }
    }
  }

  const std::string name_;
  const CallKind kind_;
  const Reduce reduce_;
  DType type_ = DType::f32;
  std::vector<Buffers> parts_;
  std::vector<const CpuStream*> streams_;
  size_t elements_ = 0, pieces_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> come_;  // by stream
  bool done_ = false;
  std::atomic<size_t> next_{0}, finished_{0};
};

class CpuGroup : public Group {
 public:
  using Group::Group;

 private:
  void carry_out(const Call& call) override {
    const auto shared = std::make_shared<SharedCall>(to_string(call.kind) + " of group " + name(), call);
    std::set<CpuStream*> given;
    for (const Part& part : call.parts) {
      CpuStream& worker = cpu_stream(*part.stream);
      if (given.insert(&worker).second) worker.enqueue_waiting([shared, &worker] { shared->join(worker); });
    }
  }
};

}  // namespace

std::unique_ptr<Group> make_group(std::string name, std::vector<int> members) {
  std::vector<int> local(members.size());
  std::iota(local.begin(), local.end(), 0);
  return std::make_unique<CpuGroup>(std::move(name), std::move(members), std::move(local));
}

}  // namespace stp::cpu
