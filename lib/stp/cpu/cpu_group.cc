#include "stp/cpu/cpu_group.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <utility>

#include "stp/base/error.h"
#include "stp/cpu/cpu_stream.h"
#include "stp/device/bfloat16.h"
#include "stp/device/element_type.h"

namespace stp::cpu {
namespace {

/// Elements, or bytes of a copy, that a thread processes at a time.
constexpr size_t kPiece = size_t{1} << 14;

/// The processes of a group whose members belong to several processes.
struct Remote {
  std::map<int, std::vector<int>> members;  // by process
  int here;                                 // this process
  std::vector<int> driven_by;               // by member: its process
  Processes& processes;
  std::vector<uint64_t> exchange;  // by process: the number of this group's exchange with it
};

/// One call, shared by the streams of its parts. The last stream to arrive exchanges inputs with other
/// processes. Then every thread that is free processes elements in pieces, so that none waits for a thread
/// that the system has not woken yet; an element's value does not depend on the thread. No stream continues
/// before all pieces are done, so buffers stay valid.
class SharedCall {
 public:
  /// `remote`: null if this process drives all members; else this is call `number` of the group.
  SharedCall(const Group& group, const Call& call, std::shared_ptr<const Remote> remote, uint64_t number)
      : name_(to_string(call.kind) + " of group " + group.name()),
        kind_(call.kind),
        reduce_(call.reduce),
        type_(call.parts.front().in.type),
        members_(group.size()),
        remote_(std::move(remote)),
        number_(number) {
    std::vector<const Part*> parts(members_.size());  // null: of another process
    for (size_t i = 0; i < call.parts.size(); ++i) {
      const Part& part = call.parts[i];
      parts[group.local()[i]] = &part;
      members_[group.local()[i]] = {address(part.in), address(part.out)};
      const CpuStream& stream = cpu_stream(*part.stream);
      if (std::find(streams_.begin(), streams_.end(), &stream) == streams_.end()) streams_.push_back(&stream);
    }
    come_.assign(streams_.size(), false);
    const Tensor& in = call.parts.front().in;
    input_bytes_ = (in ? in : call.parts.front().out).bytes();
    if (kind_ == CallKind::transfer || kind_ == CallKind::all_to_all) add_blocks(parts);
    if (kind_ == CallKind::all_reduce || kind_ == CallKind::reduce_scatter)
      elements_ = static_cast<size_t>(in.elements());
    else if (kind_ == CallKind::all_gather)
      elements_ = input_bytes_;
    else
      for (const Block& block : blocks_) elements_ = std::max(elements_, block.bytes);
    pieces_ = (elements_ + kPiece - 1) / kPiece;
    done_.is = pieces_ == 0;
  }

  /// Gives `stream` its tasks of the call.
  static void give(const std::shared_ptr<SharedCall>& call, CpuStream& stream) {
    const auto arrive = [call, &stream] { call->arrive(stream); };
    if (call->remote_)
      stream.enqueue_waiting(arrive);
    else
      stream.enqueue_after(nullptr, arrive);
    stream.enqueue_after({call, &call->complete_}, [call] { call->work(); });
    stream.enqueue_after({call, &call->done_}, nullptr);
  }

 private:
  struct Buffers {
    std::byte* in = nullptr;
    std::byte* out = nullptr;  // null: of another process
  };
  /// The data that one member sends another.
  struct Block {
    size_t from, to;
    std::byte *in, *out;  // null: of another process
    size_t bytes;
  };

  // Adds the blocks of a transfer or an all-to-all by sender and receiver, so both ends of several messages
  // have them in the same order.
  void add_blocks(const std::vector<const Part*>& parts) {
    const auto add = [&](size_t from, size_t to, const Tensor& in, const Tensor& out) {
      if (in || out) blocks_.push_back({from, to, address(in), address(out), (in ? in : out).bytes()});
    };
    const int size = static_cast<int>(parts.size());
    for (int from = 0; from < size; ++from)
      for (int to = 0; to < size; ++to) {
        const Part *sender = parts[from], *receiver = parts[to];
        if (kind_ == CallKind::all_to_all)
          add(from, to, sender != nullptr ? sender->sent_to(to, size) : Tensor{},
              receiver != nullptr ? receiver->received_from(from, size) : Tensor{});
        else if (to == (from + 1) % size)
          add(from, to, sender != nullptr ? sender->in : Tensor{},
              receiver != nullptr ? receiver->out : Tensor{});
      }
  }

  /// All streams have arrived, and other processes' inputs.
  struct Complete : Awaited {
    explicit Complete(SharedCall& of) : call(of) {}
    [[nodiscard]] bool ready() const override { return is; }
    [[nodiscard]] std::string text() const override {
      return " waits in " + call.name_ + " for " + call.missing();
    }
    [[nodiscard]] RunGuard::WaitFor wait_for() const override { return RunGuard::WaitFor::peer; }

    SharedCall& call;
    std::atomic<bool> is{false};
  };
  /// All pieces are done.
  struct Done : Awaited {
    explicit Done(SharedCall& of) : call(of) {}
    [[nodiscard]] bool ready() const override { return is; }
    [[nodiscard]] std::string text() const override { return " waits for the end of " + call.name_; }

    SharedCall& call;
    std::atomic<bool> is{false};
  };

  void arrive(const CpuStream& stream) {
    std::unique_lock lock(mutex_);
    come_[std::find(streams_.begin(), streams_.end(), &stream) - streams_.begin()] = true;
    if (std::find(come_.begin(), come_.end(), false) != come_.end()) return;
    if (remote_) {
      lock.unlock();
      exchange(stream);
    }
    complete_.is = true;  // under the lock, if none is missing()
  }

  [[nodiscard]] std::string missing() {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> missing;
    for (size_t i = 0; i < streams_.size(); ++i)
      if (!come_[i]) missing.push_back("rank " + std::to_string(streams_[i]->rank()));
    if (!missing.empty() || !remote_) return joined(missing);
    // The stream that exchanges with them knows which have come.
    for (const auto& [process, members] : remote_->members)
      if (process != remote_->here) missing.push_back("process " + std::to_string(process));
    return joined(missing);
  }

  // The last stream to arrive does this work.
  void exchange(const CpuStream& stream) {
    std::vector<Message> sends, receives;
    collect_messages(sends, receives);
    const std::unique_ptr<Pending> pending =
        remote_->processes.start(remote_->exchange, number_, sends, receives);
    // A missing sender is usually itself waiting for others.
    const auto wait_for = kind_ == CallKind::transfer ? RunGuard::WaitFor::own_work : RunGuard::WaitFor::peer;
    stream.run().guard.poll(
        wait_for, [&] { return pending->done(); },
        [&] {
          const auto words = [](int process) { return "process " + std::to_string(process); };
          return stream.where() + " waits in " + name_ + " for " + joined(pending->missing(), words);
        });
  }

  void collect_messages(std::vector<Message>& sends, std::vector<Message>& receives) {
    const auto add = [](std::vector<Message>& to, int process, std::span<std::byte> bytes) {
      to.push_back({process, bytes.data(), bytes.size()});
    };
    for (const Block& block : blocks_) {
      if (remote_->driven_by[block.from] == remote_->driven_by[block.to]) continue;
      if (block.in != nullptr) add(sends, remote_->driven_by[block.to], {block.in, block.bytes});
      if (block.out != nullptr) add(receives, remote_->driven_by[block.from], {block.out, block.bytes});
    }
    if (kind_ == CallKind::transfer || kind_ == CallKind::all_to_all) return;
    const std::vector<int>& own = remote_->members.at(remote_->here);
    std::byte* room = nullptr;
    if (kind_ == CallKind::all_gather) {
      room = members_[own.front()].out;
    } else {
      received_ = std::make_unique_for_overwrite<std::byte[]>(members_.size() * input_bytes_);
      room = received_.get();
    }
    for (const auto& [process, theirs] : remote_->members) {
      if (process == remote_->here) continue;
      for (const int member : own)
        for (const auto& slice : wanted(members_[member].in, theirs)) add(sends, process, slice);
      for (const int member : theirs) {
        members_[member].in = room + member * input_bytes_;
        for (const auto& slice : wanted(members_[member].in, own)) add(receives, process, slice);
      }
    }
  }

  // The part of an input that the process of `receivers` needs.
  [[nodiscard]] std::vector<std::span<std::byte>> wanted(std::byte* input,
                                                         const std::vector<int>& receivers) const {
    if (kind_ != CallKind::reduce_scatter) return {{input, input_bytes_}};
    std::vector<std::span<std::byte>> slices;
    const size_t share = input_bytes_ / members_.size();
    for (const int member : receivers) slices.emplace_back(input + member * share, share);
    return slices;
  }

  void work() {
    for (size_t piece = next_.fetch_add(1); piece < pieces_; piece = next_.fetch_add(1)) {
      do_range(piece * kPiece, std::min(elements_, (piece + 1) * kPiece));
      if (finished_.fetch_add(1) + 1 == pieces_) done_.is = true;
    }
  }

  void do_range(size_t begin, size_t end) const {
    switch (kind_) {
      case CallKind::all_to_all:
      case CallKind::transfer:
        for (const Block& block : blocks_)
          if (block.in != nullptr && block.out != nullptr && begin < block.bytes)
            std::copy(block.in + begin, block.in + std::min(end, block.bytes), block.out + begin);
        return;
      case CallKind::all_gather:
        for (const Buffers& to : members_)
          for (size_t from = 0; from < members_.size() && to.out != nullptr; ++from) {
            const std::byte* const in = members_[from].in;
            std::byte* const out = to.out + from * elements_;
            if (out != in) std::copy(in + begin, in + end, out + begin);  // else it was received there
          }
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
    const size_t share = kind_ == CallKind::all_reduce ? elements_ : elements_ / members_.size();
    for (size_t at = begin, count = 0; at < end; at += count) {
      const size_t to = at / share;  // of a reduce-scatter: the member whose share this is
      count = std::min({kSums, end - at, (to + 1) * share - at});
      if (kind_ == CallKind::reduce_scatter && members_[to].out == nullptr) continue;
      for (size_t member = 0; member < members_.size(); ++member) {
        const T* in = reinterpret_cast<const T*>(members_[member].in) + at;
        if (member == 0) {
          std::copy_n(in, count, total.begin());
        } else if (reduce_ == Reduce::sum) {
          for (size_t i = 0; i < count; ++i) total[i] += in[i];
        } else {
          for (size_t i = 0; i < count; ++i) total[i] = std::max<Sum>(total[i], in[i]);
        }
      }
      const auto round_to = [&](std::byte* out) {
        if (out != nullptr)
          std::transform(total.begin(), total.begin() + count, reinterpret_cast<T*>(out) + at % share,
                         [](Sum sum) { return T(sum); });
      };
      if (kind_ == CallKind::reduce_scatter)
        round_to(members_[to].out);
      else
        for (const Buffers& member : members_) round_to(member.out);
    }
  }

  const std::string name_;
  const CallKind kind_;
  const Reduce reduce_;
  const DType type_;
  std::vector<Buffers> members_;
  std::vector<Block> blocks_;
  const std::shared_ptr<const Remote> remote_;
  const uint64_t number_;
  std::vector<const CpuStream*> streams_;
  size_t input_bytes_ = 0, elements_ = 0, pieces_ = 0;
  std::unique_ptr<std::byte[]> received_;

  std::mutex mutex_;
  std::vector<bool> come_;  // by stream
  Complete complete_{*this};
  Done done_{*this};
  std::atomic<size_t> next_{0}, finished_{0};
};

class CpuGroup : public Group {
 public:
  CpuGroup(std::string name, std::vector<int> members, std::vector<int> local,
           std::shared_ptr<const Remote> remote)
      : Group(std::move(name), std::move(members), std::move(local)), remote_(std::move(remote)) {}

 private:
  void carry_out(const Call& call) override {
    const auto shared = std::make_shared<SharedCall>(*this, call, remote_, calls_++);
    std::set<CpuStream*> given;
    for (const Part& part : call.parts) {
      CpuStream& worker = cpu_stream(*part.stream);
      if (given.insert(&worker).second) SharedCall::give(shared, worker);
    }
  }

  const std::shared_ptr<const Remote> remote_;
  uint64_t calls_ = 0;
};

}  // namespace

std::unique_ptr<Group> make_group(std::string name, std::vector<int> members, int world_size,
                                  Processes& processes) {
  auto remote = std::make_shared<Remote>(Remote{.here = processes.index(), .processes = processes});
  for (size_t member = 0; member < members.size(); ++member) {
    const int process = process_of_rank(members[member], world_size, processes.count());
    remote->driven_by.push_back(process);
    remote->members[process].push_back(static_cast<int>(member));
  }
  std::vector<int> among;
  for (const auto& [process, theirs] : remote->members) among.push_back(process);
  std::vector<int> local = remote->members[remote->here];
  if (among.size() == 1)
    remote = nullptr;
  else
    remote->exchange = processes.number_exchange(among);
  return std::make_unique<CpuGroup>(std::move(name), std::move(members), std::move(local), std::move(remote));
}

}  // namespace stp::cpu
