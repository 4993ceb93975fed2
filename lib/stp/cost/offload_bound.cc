#include "stp/cost/offload_bound.h"

#include <algorithm>
#include <vector>

namespace stp {
namespace {

// What each block of a rank takes where nothing delays it: neither other blocks nor other ranks.
std::vector<double> block_seconds(const Program& program, int rank, const std::vector<double>& seconds) {
  std::vector<double> of_blocks(program.schedule.ranks[rank].size(), 0), ends(program.ops.size(), 0),
      stream_ends(program.streams.size(), 0);
  int block = -1;
  OpId first = program.rank_begin[rank];
  for (OpId id = first; id < program.rank_begin[rank + 1]; ++id) {
    const Op& op = program.ops[id];
    const StreamKind stream = program.stream_of(id).kind;
    const bool in_block =
        stream == StreamKind::compute || stream == StreamKind::tp || stream == StreamKind::cp;
    if (op.block < 0 || !in_block) continue;
    if (op.block != block) {
      block = op.block;
      first = id;
      std::fill(stream_ends.begin(), stream_ends.end(), 0);
    }
    double start = stream_ends[op.stream];
    for (const OpId needed : program.dependencies(id))
      if (needed >= first && needed < id) start = std::max(start, ends[needed]);
    ends[id] = stream_ends[op.stream] = start + seconds[id];
    of_blocks[block] = std::max(of_blocks[block], ends[id]);
  }
  return of_blocks;
}

}  // namespace

std::optional<double> offload_ratio_bound(const Program& program, const CostTable& table) {
  const std::vector<double> seconds = op_seconds(program, table);
  std::optional<double> bound;
  for (int rank = 0; rank < program.schedule.pp(); ++rank) {
    const std::vector<Block>& blocks = program.schedule.ranks[rank];
    const std::vector<double> of_blocks = block_seconds(program, rank, seconds);
    for (OpId id = program.rank_begin[rank]; id < program.rank_begin[rank + 1]; ++id) {
      const Op& op = program.ops[id];
      if (op.kind != OpKind::offload || blocks[op.block].braided()) continue;
      const int stage = program.stage_of(id);
      const double forward = of_blocks[op.block];
      const double all = table.offload_of_all.empty()
                             ? table.offload_per_layer * program.layers_per_stage[stage]
                             : table.offload_of_all[stage];
      double ratio = all > 0 ? std::min(1.0, forward / all) : 1;
      // Whole tensors are copied: less than the ratio allows.
      if (seconds[id] <= forward) ratio = std::max(ratio, program.strategy.offload);
      bound = std::min(bound.value_or(1), ratio);
    }
  }
  return bound;
}

}  // namespace stp
