#include "stp/device/group_call.h"

#include <stdexcept>

namespace stp {
namespace {

std::string size_text(const Tensor& tensor) {
  return std::to_string(tensor.rows) + " x " + std::to_string(tensor.columns) + " " + to_string(tensor.type);
}

bool same_shape(const Tensor& a, const Tensor& b) {
  return a.rows == b.rows && a.columns == b.columns && a.type == b.type;
}

}  // namespace

std::string CallPart::text() const {
  const char* how = reduce == Reduce::sum ? " (sum) of " : " (maximum) of ";
  switch (kind) {
    case CallKind::all_reduce:
      return "all-reduce" + (how + size_text(in));
    case CallKind::all_gather:
      return "all-gather of " + size_text(in) + " to " + size_text(out);
    case CallKind::reduce_scatter:
      return "reduce-scatter of " + size_text(in) + " to " + size_text(out);
    case CallKind::send:
      return "send of " + size_text(in);
    case CallKind::receive:
      return "receive of " + size_text(out);
  }
  return "";
}

void check_parts_fit(const std::string& name, const RunContext& run,
                     const std::vector<const CallParty*>& parties) {
  const auto where = [&](const CallParty& party) {
    return run.where(party.rank, party.stream, party.op) + ": " + party.part.text();
  };
  const auto differ = [&](const CallParty& a, const CallParty& b) {
    throw std::runtime_error(name + ": the calls do not fit together: " + where(a) + "; " + where(b));
  };
  const CallParty& first = *parties[0];
  const CallKind kind = first.part.kind;
  if (kind == CallKind::send || kind == CallKind::receive) {
    const CallParty& other = *parties[1];
    if (kind != CallKind::send || other.part.kind != CallKind::receive ||
        !same_shape(first.part.in, other.part.out))
      differ(first, other);
    return;
  }
  for (const CallParty* party : parties) {
    if (party->part.kind != kind || party->part.reduce != first.part.reduce ||
        !same_shape(party->part.in, first.part.in) || !same_shape(party->part.out, first.part.out))
      differ(first, *party);
  }
  const auto members = static_cast<int64_t>(parties.size());
  const Tensor &in = first.part.in, &out = first.part.out;
  const bool fits =
      kind == CallKind::all_reduce ||
      (in.columns == out.columns && in.type == out.type &&
       (kind == CallKind::all_gather ? out.rows == members * in.rows : in.rows == members * out.rows));
  if (!fits) throw std::runtime_error(name + ": input and output do not fit: " + where(first));
  if (kind != CallKind::all_gather && in.type == DType::i32)
    throw std::runtime_error(name + ": there is no reduction of " + to_string(in.type) + ": " + where(first));
}

}  // namespace stp
