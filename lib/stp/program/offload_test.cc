// Offload: which activations, when, and what their copies wait for.
#include "stp/program/offload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "stp/program/issue_order.h"
#include "stp/program/lower.h"
#include "support/effort.h"
#include "support/programs.h"

namespace stp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

std::vector<std::string> of_blocks(const std::vector<std::string>& blocks) {
  std::vector<std::string> texts;
  for (const OffloadedActivation& each : offloaded_activations(one_rank(blocks).ranks[0]))
    texts.push_back(to_string(each.backward) + " " + std::to_string(each.forward_block) + "-" +
                    std::to_string(each.backward_block));
  return texts;
}

// A block to copy it out, at least one without it, and a block to copy it back lie between.
TEST(OffloadedActivations, AreThoseThatLeaveTheDeviceForAtLeastOneBlock) {
  EXPECT_THAT(of_blocks({"F0.0", "F0.1", "F0.2", "B0.0", "B0.1", "B0.2"}), IsEmpty());
  EXPECT_THAT(of_blocks({"F0.0", "F0.1", "F0.2", "F0.3", "B0.0", "B0.1", "B0.3", "B0.2"}),
              ElementsAre("B0.0 0-4", "B0.1 1-5", "B0.2 2-7"));
  EXPECT_THAT(of_blocks({"F0.0", "F0.1", "F0.2", "F0.3&I0.0", "W0.0", "I0.1", "W0.1"}),
              ElementsAre("I0.1 1-5"));
}
TEST(OffloadedActivations, AreOfChunkZeroAlone) {
  EXPECT_THAT(of_blocks({"F0.0", "F1.0", "F0.1", "F1.1", "F0.2", "F1.2", "B1.0", "B0.0"}),
              ElementsAre("B0.0 0-7"));
}

// ---- what waits for what ----

bool waits_for(const Program& program, OpId op, OpId needed) {
  const auto all = program.dependencies(op);
  return std::find(all.begin(), all.end(), needed) != all.end();
}

// The ops of layers of one rank's chunk 0 and microbatch, forward or not, that its saved tensors may be used
// by.
std::vector<OpId> users(const Program& program, int rank, int microbatch, bool forward) {
  std::vector<OpId> found;
  for (OpId id = program.rank_begin[rank]; id < program.rank_begin[rank + 1]; ++id) {
    const Op& op = program.ops[id];
    const bool of_layer =
        (op.kind == OpKind::compute || op.kind == OpKind::weight_gradients || is_collective(op.kind)) &&
        (op.unit == Unit::attn || op.unit == Unit::mlp);
    // An all-reduce or reduce-scatter of a forward works on its output, which is not saved.
    const bool of_output = op.kind == OpKind::all_reduce || (forward && op.kind == OpKind::reduce_scatter);
    if (of_layer && !of_output && op.chunk == 0 && op.microbatch == microbatch &&
        (op.pass == Pass::F) == forward)
      found.push_back(id);
  }
  return found;
}

// Every synchronisation that a rank's copies lack.
std::set<std::string> lacking(const Program& program) {
  std::set<std::string> found;
  const auto expect = [&](bool holds, const char* what) {
    if (!holds) found.insert(what);
  };
  const Order order(program);
  for (int rank = 0; rank < program.schedule.pp(); ++rank)
    for (const OffloadedActivation& each : offloaded_activations(program.schedule.ranks[rank])) {
      OpId offload = 0, reload = 0;
      std::vector<OpId> freeing;
      for (OpId id = program.rank_begin[rank]; id < program.rank_begin[rank + 1]; ++id) {
        const Op& op = program.ops[id];
        if (is_host_copy(op.kind) && op.chunk == 0 && op.microbatch == each.backward.microbatch)
          (op.kind == OpKind::offload ? offload : reload) = id;
      }
      if (offload == 0 || reload == 0) {
        found.insert("an activation stays");
        continue;
      }
      for (OpId id = program.rank_begin[rank]; id < program.rank_begin[rank + 1]; ++id)
        if (waits_for(program, id, offload) && program.frees(id, offload)) freeing.push_back(id);
      for (const OpId forward : users(program, rank, each.backward.microbatch, true))
        expect(order.after(forward)[offload], "an offload does not wait for its forward");
      expect(waits_for(program, reload, offload), "a reload does not wait for its offload");
      const auto after_reload = order.after(reload);
      for (const OpId backward : users(program, rank, each.backward.microbatch, false))
        expect(after_reload[backward], "a backward does not wait for its reload");
      expect(freeing.size() == 1, "memory is not freed once");
      if (freeing.size() != 1) continue;
      const Op& op = program.ops[freeing[0]];
      expect(program.stream_of(freeing[0]).kind == StreamKind::compute && op.block >= each.freed_at(),
             "memory is freed too early");
      for (OpId id = program.rank_begin[rank]; id < freeing[0]; ++id)
        expect(program.ops[id].block < each.freed_at() || program.stream_of(id).kind != StreamKind::compute,
               "memory is freed too late");
      OpId latest = program.rank_begin[rank];
      for (OpId id = latest; id < reload && program.ops[id].block < program.ops[reload].block; ++id)
        if (program.stream_of(id).kind == StreamKind::compute) latest = id;
      expect(waits_for(program, reload, latest), "a reload takes memory that is not free yet");
      for (OpId id = program.rank_begin[rank]; id < reload; ++id)
        for (const OpId needed : program.dependencies(id))
          if (program.frees(id, needed))
            expect(order.after(needed)[reload], "a reload takes memory that is not free yet");
    }
  return found;
}

Program without(Program program, OpId op, OpId needed) {
  const auto begin = program.depends.begin() + program.depends_begin[op],
             end = program.depends.begin() + program.depends_begin[op + 1];
  program.depends.erase(std::find(begin, end, needed));
  for (OpId later = op + 1; later <= program.ops.size(); ++later) --program.depends_begin[later];
  return program;
}

Program offloading(int pp, int m, Lowering lowering = {}) {
  lowering.strategy.offload = 0.5;
  return lower(stp_schedule(pp, m), std::vector<int>(2 * pp, 2), lowering);
}

TEST(Offload, IsSynchronisedInEveryOrder) {
  Sample sampled;
  for (const Release release : kReleases)
    for (const bool sequence_parallel : {false, true})
      for (const Recompute& recompute : {Recompute{}, Recompute{.layer = true}, Recompute{.core = true}})
        for (const int cp : {1, 2}) {
          if (!sampled()) continue;
          Lowering lowering{
              .release = release,
              .optimizer = true,
              .strategy = {.cp = cp, .sequence_parallel = sequence_parallel, .recompute = recompute},
              .embedding = true};
          for (const auto& [pp, m] : {std::pair{2, 7}, {3, 9}}) {
            const Program program = offloading(pp, m, lowering);
            EXPECT_THAT(lacking(program), IsEmpty()) << pp;
            EXPECT_EQ(issue_order(program).ops.size(), program.ops.size());
            EXPECT_TRUE(std::ranges::any_of(program.ops, [](const Op& op) { return is_host_copy(op.kind); }));
          }
        }
}

// An exchange of rows comes first, on another stream than the compute ops that use what is reloaded.
TEST(Offload, IsSynchronisedWithOverlappedTensorParallelism) {
  for (const BackwardOrder order : {BackwardOrder::suite, BackwardOrder::megatron})
    for (const Recompute& recompute : {Recompute{}, Recompute{.layer = true}, Recompute{.mlp = true}}) {
      Lowering lowering{
          .backward = order,
          .strategy = {
              .tp = 2, .sequence_parallel = true, .recompute = recompute, .tp_overlap = TpOverlap::megatron}};
      EXPECT_THAT(lacking(offloading(2, 7, lowering)), IsEmpty());
    }
}

// Each dependency of a copy, or on one, is what one of the synchronisations consists of.
TEST(Offload, LacksOneSynchronisationWithoutAnyOneOfItsDependencies) {
  for (const bool sequence_parallel : {false, true}) {
    const Program program = offloading(2, 7, {.strategy = {.sequence_parallel = sequence_parallel}});
    std::set<std::string> seen;
    for (OpId op = 0; op < program.ops.size(); ++op)
      for (const OpId needed : program.dependencies(op)) {
        const bool of_copy = is_host_copy(program.ops[op].kind) || is_host_copy(program.ops[needed].kind);
        // Sequence parallelism frees tensors in collectives too: the memory that a reload gets may be theirs.
        if (!of_copy || is_collective(program.ops[needed].kind)) continue;
        if (kStride > 1 && program.ops[op].microbatch % 3 > 0) continue;
        const auto lost = lacking(without(program, op, needed));
        EXPECT_EQ(lost.size(), 1U) << describe(program, op) << " without " << describe(program, needed);
        seen.insert(lost.begin(), lost.end());
      }
    EXPECT_THAT(seen, UnorderedElementsAre(
                          "a backward does not wait for its reload", "a reload does not wait for its offload",
                          "a reload takes memory that is not free yet", "memory is not freed once",
                          "an offload does not wait for its forward"));
  }
}

TEST(Offload, SkipsAChunkWithoutLayers) {
  const Program program = lower(stp_schedule(2, 7), {0, 2, 2, 2}, {.strategy = {.offload = 0.5}});
  std::set<int> ranks;
  for (OpId op = 0; op < program.ops.size(); ++op)
    if (is_host_copy(program.ops[op].kind)) ranks.insert(program.stream_of(op).rank);
  EXPECT_THAT(ranks, ElementsAre(1));
}

TEST(Offload, OfNothingChangesNothing) {
  const Program with = lower(stp_schedule(2, 7), {2, 2, 2, 2}, {.strategy = {.offload = 0}});
  for (const Op& op : with.ops) EXPECT_FALSE(is_host_copy(op.kind));
  EXPECT_EQ(with.streams.size(), lower(stp_schedule(2, 7), {2, 2, 2, 2}, {}).streams.size());
}

}  // namespace
}  // namespace stp
