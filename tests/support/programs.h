// For tests of Programs: their ops as text and counted, and what is lowered.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "stp/program/lower.h"
#include "stp/program/program.h"
#include "support/schedules.h"

namespace stp {

using Texts = std::vector<std::string>;

/// One op as text, such as "F0.1: AR attn.F0": its action and what it does, with the layer. Of what belongs
/// to no action: describe_op().
inline std::string op_text(const Program& program, OpId id) {
  const Op& op = program.ops[id];
  const std::string at = op.unit == Unit::head || op.unit == Unit::embedding ? "" : std::to_string(op.layer),
                    of_unit = to_string(op.unit, op.unit_pass) + at, step = std::to_string(op.step);
  const auto of_action = [&](const std::string& text) {
    return to_string(Action{op.pass, op.chunk, op.microbatch}) + ": " + text;
  };
  switch (op.kind) {
    case OpKind::compute: {
      const bool steps = program.strategy.steps(op.unit, op.unit_pass, op.part) > 1;
      return of_action(to_string(op.unit, op.unit_pass) + suffix(op.part) + at +
                       (steps ? ", step " + step : ""));
    }
    case OpKind::exchange: {
      constexpr std::array kNames{"KV ", "dKV ", "A2A ", "A2A ", "rows "};
      return of_action(kNames.at(static_cast<size_t>(op.exchange)) + of_unit + ", " + step);
    }
    case OpKind::weight_gradients:
      return of_action(to_string(op.unit) + ".W both" + at);
    case OpKind::all_reduce:
      return of_action("AR " + of_unit);
    case OpKind::reduce_scatter:
      return of_action("RS " + of_unit + (op.part == UnitPart::after ? ", piece " + step : ""));
    case OpKind::all_gather:
      return of_action("AG " + of_unit);
    case OpKind::transfer:
      return of_action("send " + std::to_string(op.tensors()) + " to " +
                       std::to_string(program.stream_of(id).peer));
    default:
      return describe_op(program, id);
  }
}

/// The dependencies of the op of `rank` that reads as `text`: rank and text.
inline Texts waits_of(const Program& program, int rank, const std::string& text) {
  for (OpId op = program.rank_begin[rank]; op < program.rank_begin[rank + 1]; ++op) {
    if (op_text(program, op) != text) continue;
    Texts texts;
    for (const OpId needed : program.dependencies(op))
      texts.push_back(std::to_string(program.stream_of(needed).rank) + " " + op_text(program, needed));
    return texts;
  }
  return {"there is no " + text};
}

/// How many ops there are of each kind.
inline std::map<std::string, int> count(const Program& program) {
  std::map<std::string, int> counts;
  for (const Op& op : program.ops) {
    if (op.kind == OpKind::compute) ++counts["compute " + to_string(op.unit, op.unit_pass) + suffix(op.part)];
    if (op.kind == OpKind::weight_gradients) ++counts["both " + to_string(op.unit)];
    if (is_collective(op.kind)) ++counts[collective_name(op.kind) + " in " + letter(op.pass)];
    if (op.kind == OpKind::transfer) ++counts["transfer"];
    if (op.kind == OpKind::gradient_reduce) ++counts["gradient reduction"];
    if (op.kind == OpKind::gradient_scatter) ++counts["gradient scatter"];
    if (op.kind == OpKind::weight_gather) ++counts["weight gather"];
    if (op.kind == OpKind::optimizer) ++counts["optimizer"];
  }
  return counts;
}

/// What comes after what: on its stream, or by dependencies.
class Order {
 public:
  explicit Order(const Program& program) : followers_(program.ops.size()) {
    std::vector<OpId> last(program.streams.size(), kNone);
    for (OpId op = 0; op < program.ops.size(); ++op) {
      for (const OpId needed : program.dependencies(op)) followers_[needed].push_back(op);
      OpId& before = last[program.on_stream[op]];
      if (before != kNone) followers_[before].push_back(op);
      before = op;
    }
  }

  /// By op, whether it comes after `op`. Bits would take several times as long.
  [[nodiscard]] std::vector<char> after(OpId op) const {
    std::vector<char> found(followers_.size());
    std::vector<OpId> open{op};
    while (!open.empty()) {
      const OpId at = open.back();
      open.pop_back();
      for (const OpId follower : followers_[at])
        if (!found[follower]) {
          found[follower] = true;
          open.push_back(follower);
        }
    }
    return found;
  }

 private:
  static constexpr OpId kNone = ~OpId{0};
  std::vector<std::vector<OpId>> followers_;
};

/// When the ops of a Program of one rank end, each as early as its stream and its dependencies let it.
inline std::vector<double> ends_of_ops(const Program& program, const std::vector<double>& seconds) {
  std::vector<double> ends(program.ops.size()), of_streams(program.streams.size(), 0);
  for (OpId op = 0; op < program.ops.size(); ++op) {
    double start = of_streams[program.on_stream[op]];
    for (const OpId needed : program.dependencies(op)) start = std::max(start, ends[needed]);
    ends[op] = of_streams[program.on_stream[op]] = start + seconds[op];
  }
  return ends;
}

inline constexpr Release kReleases[] = {Release::chain,           Release::block,    Release::released,
                                        Release::blocking,        Release::megatron, Release::megatron_0_18,
                                        Release::megatron_batched};

/// A number of layers for each stage.
inline std::vector<int> random_layers(std::mt19937& random, int stages) {
  std::vector<int> layers(stages);
  for (int& count : layers) count = static_cast<int>(random() % 4);  // zero among them
  return layers;
}

/// Two ranks, two microbatches, one braided block.
inline const Schedule& two_ranks() {
  static const Schedule schedule = by_hand(
      Placement::loop(2, 1), 2, {{"F0.0", "F0.1", "B0.0", "I0.1", "W0.1"}, {"F0.0", "F0.1&B0.0", "B0.1"}});
  return schedule;
}

}  // namespace stp
