// For tests of Programs: their ops as text and counted, and what is lowered.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "stp/program/lower.h"
#include "stp/program/program.h"
#include "support/schedules.h"

namespace stp {

using Texts = std::vector<std::string>;

/// One op as text, such as "F0.1: AR attn.F0": its action and what it does, with the layer.
inline std::string op_text(const Program& program, OpId id) {
  const Op& op = program.ops[id];
  const std::string action = to_string(Action{op.pass, op.chunk, op.microbatch}) + ": ";
  const std::string at = op.unit == Unit::head || op.unit == Unit::embedding ? "" : std::to_string(op.layer);
  switch (op.kind) {
    case OpKind::compute:
      return action + to_string(op.unit, op.unit_pass) + suffix(op.part) + at +
             (program.division().steps(op.unit, op.unit_pass, op.part) > 1
                  ? ", step " + std::to_string(op.step)
                  : "");
    case OpKind::kv_exchange:
      return action + "KV " + to_string(op.unit, op.unit_pass) + at + ", " + std::to_string(op.step);
    case OpKind::kv_gradient_exchange:
      return action + "dKV " + to_string(op.unit, op.unit_pass) + at + ", " + std::to_string(op.step);
    case OpKind::all_to_all:
      return action + "A2A " + to_string(op.unit, op.unit_pass) + at + ", " + std::to_string(op.step);
    case OpKind::row_exchange:
      return action + "rows " + to_string(op.unit, op.unit_pass) + at + ", " + std::to_string(op.step);
    case OpKind::weight_gradients:
      return action + to_string(op.unit) + ".W both" + at;
    case OpKind::all_reduce:
      return action + "AR " + to_string(op.unit, op.unit_pass) + at;
    case OpKind::reduce_scatter:
      return action + "RS " + to_string(op.unit, op.unit_pass) + at +
             (op.part == UnitPart::after ? ", piece " + std::to_string(op.step) : "");
    case OpKind::all_gather:
      return action + "AG " + to_string(op.unit, op.unit_pass) + at;
    case OpKind::transfer:
      return action + "send " + std::to_string(op.tensors()) + " to " +
             std::to_string(program.stream_of(id).peer);
    case OpKind::gradient_reduce:
      return "reduce chunk " + std::to_string(op.chunk);
    case OpKind::gradient_scatter:
      return "scatter chunk " + std::to_string(op.chunk);
    case OpKind::weight_gather:
      return "gather chunk " + std::to_string(op.chunk);
    case OpKind::embedding_reduce:
      return "reduce embedding";
    case OpKind::gradient_norm:
      return "norm";
    case OpKind::norm_prefix:
      return "norm so far to " + std::to_string(program.stream_of(id).peer);
    case OpKind::norm_total:
      return "norm back to " + std::to_string(program.stream_of(id).peer);
    case OpKind::optimizer:
      return "optimizer";
    case OpKind::offload:
    case OpKind::reload:
      return host_copy_name(op);
  }
  return "";
}

/// How many ops there are of each kind.
struct Counts {
  std::map<std::string, int> of;
  int tensors = 0;  // that transfers carry
};

inline Counts count(const Program& program) {
  Counts counts;
  for (OpId id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    const std::string pass(1, letter(op.pass));
    switch (op.kind) {
      case OpKind::compute:
        ++counts.of["compute " + to_string(op.unit, op.unit_pass) + suffix(op.part)];
        break;
      case OpKind::kv_exchange:
        ++counts.of["KV in " + pass];
        break;
      case OpKind::kv_gradient_exchange:
        ++counts.of["dKV in " + pass];
        break;
      case OpKind::all_to_all:
        ++counts.of["A2A in " + pass];
        break;
      case OpKind::row_exchange:
        ++counts.of["rows in " + pass];
        break;
      case OpKind::weight_gradients:
        ++counts.of["both " + to_string(op.unit)];
        break;
      case OpKind::all_reduce:
      case OpKind::reduce_scatter:
      case OpKind::all_gather:
        ++counts.of[collective_name(op.kind) + " in " + pass];
        break;
      case OpKind::transfer:
        ++counts.of["transfer"];
        counts.tensors += op.tensors();
        break;
      case OpKind::gradient_reduce:
        ++counts.of["gradient reduction"];
        break;
      case OpKind::gradient_scatter:
        ++counts.of["gradient scatter"];
        break;
      case OpKind::weight_gather:
        ++counts.of["weight gather"];
        break;
      case OpKind::embedding_reduce:
        ++counts.of["embedding reduction"];
        break;
      case OpKind::offload:
      case OpKind::reload:
        ++counts.of["host copy"];
        break;
      case OpKind::gradient_norm:
      case OpKind::norm_prefix:
      case OpKind::norm_total:
        ++counts.of["gradients' norm"];
        break;
      case OpKind::optimizer:
        ++counts.of["optimizer"];
        break;
    }
  }
  return counts;
}

inline constexpr Release kReleases[] = {Release::chain, Release::block, Release::released};

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
