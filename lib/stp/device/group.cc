#include "stp/device/group.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>

namespace stp {

std::string to_string(CallKind kind) {
  static constexpr std::array names{"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "transfer"};
  return names[static_cast<size_t>(kind)];
}

namespace {

const Tensor& whole_tensor(CallKind kind, const Part& part) {
  return kind == CallKind::all_gather || !part.in ? part.out : part.in;
}

// The block of `all` that belongs to `member`.
Tensor block(const Tensor& all, const std::vector<int64_t>& rows, int member, int size) {
  if (rows.empty()) return all.part(member * (all.rows / size) * all.columns, all.rows / size, all.columns);
  const int64_t before = std::accumulate(rows.begin(), rows.begin() + member, int64_t{0});
  return all.part(before * all.columns, rows[member], all.columns);
}

bool same_shape(const Tensor& a, const Tensor& b) {
  return a.rows == b.rows && a.columns == b.columns && a.type == b.type;
}

}  // namespace

Tensor Part::sent_to(int member, int size) const { return block(in, sent_rows, member, size); }
Tensor Part::received_from(int member, int size) const { return block(out, received_rows, member, size); }

int64_t Call::bytes() const {
  const Part& first = parts.front();
  const size_t bytes = whole_tensor(kind, first).bytes();
  return static_cast<int64_t>(kind == CallKind::all_to_all ? std::max(bytes, first.out.bytes()) : bytes);
}

std::string Call::text() const {
  const Tensor& tensor = whole_tensor(kind, parts.front());
  const bool sums = kind == CallKind::all_reduce || kind == CallKind::reduce_scatter;
  return to_string(kind) +
         (!sums                   ? ""
          : reduce == Reduce::sum ? " (sum)"
                                  : " (maximum)") +
         " of " + std::to_string(tensor.rows) + " x " + std::to_string(tensor.columns) + " " +
         to_string(tensor.type);
}

std::vector<int> local_members(const std::vector<int>& members, const std::vector<int>& ranks) {
  std::vector<int> local;
  for (size_t i = 0; i < members.size(); ++i)
    if (std::find(ranks.begin(), ranks.end(), members[i]) != ranks.end())
      local.push_back(static_cast<int>(i));
  return local;
}

Group::Group(std::string name, std::vector<int> members, std::vector<int> local)
    : name_(std::move(name)),
      members_(std::move(members)),
      local_(std::move(local)),
      traffic_(local_.size()) {
  if (local_.empty()) throw std::logic_error("group " + name_ + " has no member in this process");
}

void Group::check(const Call& call) const {
  const auto expect = [&](bool fits) {
    if (!fits) throw std::logic_error("group " + name_ + ": the parts of a call do not fit: " + call.text());
  };
  expect(call.parts.size() == local_.size());
  for (const Part& part : call.parts) {
    expect(part.stream != nullptr && (part.in || part.out));
    const Tensor &in = part.in, &out = part.out, &first = call.parts.front().in;
    switch (call.kind) {
      case CallKind::all_reduce:
        expect(address(in) == address(out) && same_shape(in, out) && same_shape(in, first));
        break;
      case CallKind::all_gather:
        expect(in && out && same_shape(in, first) && in.columns == out.columns && in.type == out.type &&
               out.rows == size() * in.rows);
        break;
      case CallKind::reduce_scatter:
        expect(in && out && same_shape(in, first) && in.columns == out.columns && in.type == out.type &&
               in.rows == size() * out.rows);
        break;
      case CallKind::all_to_all:
        expect(in && out && in.columns == first.columns && in.type == first.type &&
               out.columns == in.columns && out.type == in.type && address(in) != address(out));
        break;
      case CallKind::transfer: {
        const bool sends = &part == &call.parts.front() && local_.front() == 0;
        if (in && out)
          expect(same_shape(in, first) && same_shape(out, first) && address(in) != address(out));
        else
          expect(size() == 2 && static_cast<bool>(in) == sends &&
                 (sends || !first || same_shape(out, first)));
        break;
      }
    }
    for (const Tensor* tensor : {&in, &out})
      if (*tensor && !tensor->memory->held)
        throw std::logic_error("group " + name_ + ": a tensor is used after its release: " + call.text());
  }
  if (call.kind == CallKind::all_to_all) expect(blocks_fit(call.parts));
}

bool Group::blocks_fit(std::span<const Part> parts) const {
  const auto fill = [&](const std::vector<int64_t>& blocks, int64_t rows) {
    if (blocks.empty()) return rows % size() == 0;
    return static_cast<int>(blocks.size()) == size() &&
           *std::min_element(blocks.begin(), blocks.end()) >= 0 &&
           std::accumulate(blocks.begin(), blocks.end(), int64_t{0}) == rows;
  };
  for (const Part& part : parts)
    if (!fill(part.sent_rows, part.in.rows) || !fill(part.received_rows, part.out.rows)) return false;
  for (size_t from = 0; from < parts.size(); ++from)
    for (size_t to = 0; to < parts.size(); ++to)
      if (parts[from].sent_to(local_[to], size()).rows != parts[to].received_from(local_[from], size()).rows)
        return false;
  return true;
}

void Group::give(const Call& call) {
  check(call);
  for (size_t i = 0; i < call.parts.size(); ++i) {
    const int64_t sent = call.parts[i].in ? static_cast<int64_t>(call.parts[i].in.bytes()) : 0;
    Traffic& traffic = traffic_[i];
    traffic.calls += 1;
    switch (call.kind) {
      case CallKind::all_reduce:
        traffic.all_reduce_bytes += sent;
        break;
      case CallKind::all_gather:
        traffic.all_gather_bytes += sent;
        break;
      case CallKind::reduce_scatter:
        traffic.reduce_scatter_bytes += sent;
        break;
      case CallKind::all_to_all:  // the member's own block stays
        traffic.sent_bytes += sent - static_cast<int64_t>(call.parts[i].sent_to(local_[i], size()).bytes());
        break;
      case CallKind::transfer:
        traffic.sent_bytes += sent;
        break;
    }
  }
  carry_out(call);
}

void Group::all_reduce(Reduce reduce, std::span<const Part> parts) {
  if (size() > 1) give({CallKind::all_reduce, reduce, parts});
}
void Group::all_gather(std::span<const Part> parts) { give({CallKind::all_gather, Reduce::sum, parts}); }
void Group::reduce_scatter(std::span<const Part> parts) {
  give({CallKind::reduce_scatter, Reduce::sum, parts});
}
void Group::all_to_all(std::span<const Part> parts) { give({CallKind::all_to_all, Reduce::sum, parts}); }
void Group::transfer(std::span<const Part> parts) { give({CallKind::transfer, Reduce::sum, parts}); }

}  // namespace stp
