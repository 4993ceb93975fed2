#include "stp/cpu/local_call.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "stp/cpu/cpu_memory.h"

namespace stp::cpu {
namespace {

/// Elements, or bytes of a copy, that a party works off at a time.
constexpr size_t kPiece = size_t{1} << 14;

}  // namespace

LocalCall::LocalCall(std::string name, const std::vector<int>& ranks) : name_(std::move(name)) {
  for (const int rank : ranks) parties_.emplace_back().rank = rank;
}

bool LocalCall::enter(size_t party, CallPart part, const CpuStream& stream) {
  const std::lock_guard lock(mutex_);
  Party& here = parties_[party];
  if (here.there) throw std::logic_error(name_ + ": rank " + std::to_string(here.rank) + " came twice");
  here.part = std::move(part);
  here.there = true;
  here.stream = stream.name();
  here.op = stream.running();
  if (here.part.in) here.in = data<std::byte>(here.part.in);
  if (here.part.out) here.out = data<std::byte>(here.part.out);
  return ++come_ == parties_.size();
}

void LocalCall::open(const CpuRun& run) {
  std::vector<const CallParty*> parties;
  for (const Party& party : parties_) parties.push_back(&party);
  check_parts_fit(name_, run, parties);
  const CallPart& part = parties_[0].part;
  switch (part.kind) {
    case CallKind::all_reduce:
    case CallKind::reduce_scatter:
      elements_ = static_cast<size_t>(part.in.elements());
      break;
    case CallKind::all_gather:
    case CallKind::send:
    case CallKind::receive:
      elements_ = part.in.bytes();
      break;
  }
  pieces_ = (elements_ + kPiece - 1) / kPiece;
  {
    const std::lock_guard lock(mutex_);
    open_ = true;
    done_ = pieces_ == 0;
  }
  changed_.notify_all();
}

std::string LocalCall::missing() const {
  std::string text;
  for (const Party& party : parties_)
    if (!party.there) text += (text.empty() ? "rank " : ", rank ") + std::to_string(party.rank);
  return text;
}

void LocalCall::finish(const CpuStream& stream) {
  {
    std::unique_lock lock(mutex_);
    stream.run().guard.wait(
        lock, changed_, RunGuard::WaitFor::peer, [this] { return open_; },
        [&] { return stream.where() + " waits in " + name_ + " for " + missing(); });
  }
  help();
  std::unique_lock lock(mutex_);
  stream.run().guard.wait(
      lock, changed_, RunGuard::WaitFor::own_work, [this] { return done_; },
      [&] { return stream.where() + " waits for the end of " + name_; });
}

void LocalCall::help() {
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

void LocalCall::do_range(size_t begin, size_t end) const {
  const CallKind kind = parties_[0].part.kind;
  if (kind != CallKind::all_reduce && kind != CallKind::reduce_scatter) return copy_range(begin, end);
  switch (parties_[0].part.in.type) {
    case DType::f32:
      return reduce_range<float>(begin, end);
    case DType::f64:
      return reduce_range<double>(begin, end);
    case DType::bf16:
      return reduce_range<Bfloat16>(begin, end);
    default:
      throw std::logic_error(name_ + ": no reduction of " + to_string(parties_[0].part.in.type));
  }
}

// Sums go over the parties in their order, so that all get the same bits whoever adds them up. Those of bf16
// are rounded once.
template <typename T>
void LocalCall::reduce_range(size_t begin, size_t end) const {
  constexpr size_t kBlock = 1024;
  using Sum = Wide<T>;
  std::array<Sum, kBlock> total;
  for (size_t at = begin; at < end; at += kBlock) {
    const size_t count = std::min(kBlock, end - at);
    for (size_t party = 0; party < parties_.size(); ++party) {
      const T* in = reinterpret_cast<const T*>(parties_[party].in) + at;
      if (party == 0) {
        std::copy_n(in, count, total.begin());
      } else if (parties_[0].part.reduce == Reduce::sum) {
        for (size_t i = 0; i < count; ++i) total[i] += in[i];
      } else {
        for (size_t i = 0; i < count; ++i) total[i] = std::max<Sum>(total[i], in[i]);
      }
    }
    if (parties_[0].part.kind == CallKind::all_reduce) {
      for (const Party& party : parties_)
        std::transform(total.begin(), total.begin() + count, reinterpret_cast<T*>(party.out) + at,
                       [](Sum sum) { return T(sum); });
      continue;
    }
    const size_t share = elements_ / parties_.size();
    for (size_t i = 0; i < count;) {  // what goes to one party at a time
      const size_t party = (at + i) / share, within = (at + i) % share,
                   run = std::min(count - i, share - within);
      std::transform(total.begin() + i, total.begin() + i + run,
                     reinterpret_cast<T*>(parties_[party].out) + within, [](Sum sum) { return T(sum); });
      i += run;
    }
  }
}

void LocalCall::copy_range(size_t begin, size_t end) const {
  if (parties_[0].part.kind == CallKind::send) {
    std::copy(parties_[0].in + begin, parties_[0].in + end, parties_[1].out + begin);
    return;
  }
  for (const Party& to : parties_)
    for (size_t from = 0; from < parties_.size(); ++from)
      std::copy(parties_[from].in + begin, parties_[from].in + end, to.out + from * elements_ + begin);
}

}  // namespace stp::cpu
