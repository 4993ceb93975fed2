// Segments, braids and lowering, against docs/architecture.md, section 5, written out once more in this file.
#include "stp/program/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "stp/base/error.h"
#include "stp/program/braid.h"
#include "stp/program/lower.h"
#include "stp/program/units.h"
#include "stp/schedule/generator.h"
#include "stp/schedule/validate.h"
#include "support/refusal.h"
#include "support/schedules.h"

namespace stp {

namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

using Texts = std::vector<std::string>;

// ---- section 5, once more ----

// The ops of one segment, the main one first: "attn.F", "AR", "W", "W_early", with the layer.
using SegmentText = Texts;

std::vector<SegmentText> chain_text(Pass pass, int layers, bool last, BackwardOrder order) {
  std::vector<SegmentText> chain;
  const auto add = [&](const std::string& unit, int layer) {
    const std::string at = unit == "head" ? "" : std::to_string(layer), reduce = "AR " + unit;
    const bool early = order == BackwardOrder::megatron && unit != "head";
    switch (pass) {
      case Pass::F:
        chain.push_back({unit + ".F" + at});
        break;
      case Pass::I:
        chain.push_back({unit + ".I" + at});
        break;
      case Pass::W:
        chain.push_back({unit + ".W both" + at});
        break;
      case Pass::B:
        chain.push_back({unit + ".I" + at});
        if (early) chain.back().push_back(unit + ".W_early" + at);
        break;
    }
    if (unit != "head" && pass != Pass::W)
      chain.back().push_back(reduce + (pass == Pass::F ? ".F" : ".I") + at);
    if (pass == Pass::B) chain.back().push_back(unit + (early ? ".W" : ".W both") + at);
  };
  if (last && pass != Pass::F) add("head", 0);
  for (int i = 0; i < layers; ++i) {
    const int layer = pass == Pass::F ? i : layers - 1 - i;
    add(pass == Pass::F ? "attn" : "mlp", layer);
    add(pass == Pass::F ? "mlp" : "attn", layer);
  }
  if (last && pass == Pass::F) add("head", 0);
  return chain;
}

// The static braid: from a while a is not used up and (i·nb ≤ j·na or b is used up), else from b.
std::vector<uint8_t> literal_braid(int na, int nb) {
  std::vector<uint8_t> order;
  int i = 0, j = 0;
  for (int taken = 0; taken < na + nb; ++taken) {
    const bool a_used_up = i == na, b_used_up = j == nb;
    if (!a_used_up && (i * nb <= j * na || b_used_up)) {
      order.push_back(0);
      i += 1;
    } else {
      order.push_back(1);
      j += 1;
    }
  }
  return order;
}

std::string op_text(const Program& program, OpId id) {
  const Op& op = program.ops[id];
  const std::string action = to_string(Action{op.pass, op.chunk, op.microbatch}) + ": ";
  const std::string at = op.unit == Unit::head || op.unit == Unit::embedding ? "" : std::to_string(op.layer);
  switch (op.kind) {
    case OpKind::compute:
      return action + to_string(op.unit, op.unit_pass) + at;
    case OpKind::weight_gradients:
      return action + to_string(op.unit) + ".W both" + at;
    case OpKind::all_reduce:
      return action + "AR " + to_string(op.unit, op.unit_pass) + at;
    case OpKind::reduce_scatter:
      return action + "RS " + to_string(op.unit, op.unit_pass) + at;
    case OpKind::all_gather:
      return action + "AG " + to_string(op.unit, op.unit_pass) + at;
    case OpKind::transfer:
      return action + "send " + std::to_string(op.tensors) + " to " +
             std::to_string(program.stream_of(id).peer);
    case OpKind::gradient_reduce:
      return "reduce chunk " + std::to_string(op.chunk);
    case OpKind::optimizer:
      return "optimizer";
  }
  return "";
}

// Everything that section 5 says of one lowered Program: which ops each rank issues in what order, on which
// stream, and what each waits for.
class Law {
 public:
  Law(const Program& program, const Lowering& lowering) : program_(program), lowering_(lowering) {}

  void check() {
    const Schedule& schedule = program_.schedule;
    ASSERT_EQ(program_.rank_begin.size(), static_cast<size_t>(schedule.pp()) + 1);
    ASSERT_EQ(program_.rank_begin.front(), 0U);
    ASSERT_EQ(program_.rank_begin.back(), program_.ops.size());
    ASSERT_EQ(program_.depends_begin.size(), program_.ops.size() + 1);
    ASSERT_EQ(program_.depends_begin.back(), program_.depends.size());
    for (int rank = 0; rank < schedule.pp(); ++rank) {
      next_ = program_.rank_begin[rank];
      std::set<std::string> sends_before;
      for (int block = 0; block < static_cast<int>(schedule.ranks[rank].size()); ++block) {
        check_block(rank, block, sends_before);
        if (testing::Test::HasFatalFailure()) return;
      }
      if (lowering_.optimizer) {
        expect_op(rank, -1, "optimizer", StreamKind::compute, -1);
        if (testing::Test::HasFatalFailure()) return;
        wanted_.emplace_back();
      }
      ASSERT_EQ(next_, program_.rank_begin[rank + 1]) << "rank " << rank;
    }
    check_dependencies();
    check_streams();
  }

 private:
  // An output is named "F s m" or "G s m": of virtual stage s, forward or gradient, for microbatch m.
  static std::string output(bool backward, int stage, int microbatch) {
    return (backward ? "G " : "F ") + std::to_string(stage) + " " + std::to_string(microbatch);
  }
  [[nodiscard]] std::string input_of(const Action& action, int stage) const {
    if (action.pass == Pass::W || (action.pass == Pass::F && stage == 0)) return "";
    if (action.pass == Pass::F) return output(false, stage - 1, action.microbatch);
    const bool last = stage + 1 == program_.schedule.placement.stages();
    return last ? output(false, stage, action.microbatch) : output(true, stage + 1, action.microbatch);
  }

  void expect_op(int rank, int block, const std::string& text, StreamKind kind, int peer) {
    ASSERT_LT(next_, program_.rank_begin[rank + 1]) << "rank " << rank << " lacks " << text;
    ASSERT_EQ(op_text(program_, next_), text) << "rank " << rank << ", block " << block;
    const ProgramStream& stream = program_.stream_of(next_);
    EXPECT_EQ(stream.kind, kind) << text;
    EXPECT_EQ(stream.rank, rank) << text;
    EXPECT_EQ(stream.peer, peer) << text;
    EXPECT_EQ(program_.ops[next_].block, block) << text;
    ++next_;
  }

  void check_block(int rank, int block, std::set<std::string>& sends_before) {
    const Placement& placement = program_.schedule.placement;
    const auto actions = program_.schedule.ranks[rank][block].actions();
    const bool atomic = lowering_.release != Release::chain,
               published = lowering_.release == Release::released;
    const bool two_forwards = actions.size() == 2 && actions[0].pass == Pass::F && actions[1].pass == Pass::F;
    const int count = static_cast<int>(actions.size());

    std::vector<int> stages;
    std::vector<std::vector<SegmentText>> chains;
    std::set<std::string> inputs;
    for (const Action& action : actions) {
      stages.push_back(placement.stage(rank, action.chunk));
      chains.push_back(chain_text(action.pass, program_.layers_per_stage[stages.back()],
                                  stages.back() + 1 == placement.stages(), lowering_.backward));
      if (const std::string input = input_of(action, stages.back()); !input.empty()) inputs.insert(input);
    }
    const int na = static_cast<int>(chains[0].size()),
              nb = count == 2 ? static_cast<int>(chains[1].size()) : 0;
    std::vector<uint8_t> order = literal_braid(na, nb);
    if (published && two_forwards) std::sort(order.begin(), order.end());  // one after the other

    const OpId first = next_;
    std::vector<size_t> taken(count, 0);
    std::vector<std::string> main_line(count);  // the op, by number, that the chain's next segment waits for
    std::vector<std::string> result(count);
    std::string last_compute, last_all_reduce;
    for (const uint8_t which : order) {
      const Action& action = actions[which];
      const SegmentText& segment = chains[which][taken[which]];
      for (size_t part = 0; part < segment.size(); ++part) {
        std::set<std::string> wanted;
        const bool all_reduce = segment[part].starts_with("AR");
        if (part == 0) {
          if (atomic && next_ == first) {
            wanted = inputs;
            if (published) wanted.insert(sends_before.begin(), sends_before.end());
          } else if (!atomic && taken[which] == 0) {
            if (const std::string input = input_of(action, stages[which]); !input.empty())
              wanted.insert(input);
          }
          if (published && two_forwards && which == 1 && taken[1] == 0 && na > 0) wanted.insert(result[0]);
          if (!main_line[which].empty()) wanted.insert(main_line[which]);
          main_line[which].clear();
        } else if (all_reduce) {
          wanted.insert(last_compute);
        }
        const std::string id = "#" + std::to_string(next_);
        if (part == 0) result[which] = id;
        if (all_reduce)
          result[which] = main_line[which] = last_all_reduce = id;
        else
          last_compute = id;
        expect_op(rank, block, to_string(action) + ": " + segment[part],
                  all_reduce ? StreamKind::tp : StreamKind::compute, -1);
        if (testing::Test::HasFatalFailure()) return;
        wanted_.push_back(wanted);
      }
      ++taken[which];
    }

    sends_before.clear();
    for (int i = 0; i < count; ++i) {
      const Action& action = actions[i];
      if (action.pass == Pass::W || (is_backward(action.pass) && stages[i] == 0)) continue;
      const bool backward = is_backward(action.pass), last = stages[i] + 1 == placement.stages();
      const int consumer = backward ? stages[i] - 1 : last ? stages[i] : stages[i] + 1;
      std::set<std::string> done;
      if (!atomic) {
        if (!chains[i].empty())
          done.insert(result[i]);
        else if (const std::string input = input_of(action, stages[i]); !input.empty())
          done.insert(input);
      } else if (!last_compute.empty()) {
        done.insert(last_compute);
        if (!last_all_reduce.empty()) done.insert(last_all_reduce);
      } else {
        done = inputs;
      }
      const int receiver = placement.rank_of(consumer);
      std::set<std::string>& leaves = made_[output(backward, stages[i], action.microbatch)];
      if (receiver == rank) {
        leaves = done;
        continue;
      }
      const bool merged = published && two_forwards && stages[0] == stages[1];
      leaves = {"#" + std::to_string(next_)};
      if (merged) made_[output(false, stages[1], actions[1].microbatch)] = leaves;
      sends_before.insert(*leaves.begin());
      expect_op(rank, block,
                to_string(action) + ": send " + (merged ? "2" : "1") + " to " + std::to_string(receiver),
                StreamKind::p2p, receiver);
      if (testing::Test::HasFatalFailure()) return;
      wanted_.push_back(done);
      if (merged) break;
    }
  }

  // Names of ops become ops, names of outputs the ops that make them, through chunks without layers.
  void resolve(const std::string& name, std::set<OpId>& ops) const {
    if (name.starts_with("#")) {
      ops.insert(static_cast<OpId>(std::stoul(name.substr(1))));
      return;
    }
    ASSERT_TRUE(made_.contains(name)) << name;
    for (const std::string& part : made_.at(name)) resolve(part, ops);
  }

  void check_dependencies() {
    ASSERT_EQ(wanted_.size(), program_.ops.size());
    for (OpId op = 0; op < program_.ops.size(); ++op) {
      std::set<OpId> wanted;
      for (const std::string& name : wanted_[op]) resolve(name, wanted);
      const auto span = program_.dependencies(op);
      ASSERT_EQ(std::set<OpId>(span.begin(), span.end()), wanted) << describe(program_, op);
    }
  }

  void check_streams() {
    std::set<std::tuple<StreamKind, int, int>> seen;
    for (const ProgramStream& stream : program_.streams)
      EXPECT_TRUE(seen.insert({stream.kind, stream.rank, stream.peer}).second) << "a stream twice";
  }

  const Program& program_;
  const Lowering lowering_;
  OpId next_ = 0;
  std::vector<std::set<std::string>> wanted_;          // by op
  std::map<std::string, std::set<std::string>> made_;  // by output: the ops or outputs that it stands for
};

// ---- schedules ----

std::vector<int> random_layers(std::mt19937& random, int stages) {
  std::vector<int> layers(stages);
  for (int& count : layers) count = static_cast<int>(random() % 4);  // zero among them
  return layers;
}

struct Counts {
  std::map<std::string, int> of;
  int tensors = 0;  // that transfers carry
};

Counts count(const Program& program) {
  Counts counts;
  for (OpId id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    const std::string pass(1, letter(op.pass));
    switch (op.kind) {
      case OpKind::compute:
        ++counts.of["compute " + to_string(op.unit, op.unit_pass)];
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
        counts.tensors += op.tensors;
        break;
      case OpKind::gradient_reduce:
        ++counts.of["gradient reduction"];
        break;
      case OpKind::optimizer:
        ++counts.of["optimizer"];
        break;
    }
  }
  return counts;
}

// ---- units ----

TEST(Segments, OfEveryPassAreThoseOfSectionFive) {
  const auto text = [](Pass pass, int layers, bool last, BackwardOrder order, ChainOptions options = {}) {
    std::string all;
    for (const Segment& s : segments(pass, layers, last, order, options)) {
      all += to_string(s.unit) + std::to_string(s.layer);
      all += s.main == Segment::Main::forward ? ".F" : s.main == Segment::Main::input_gradient ? ".I" : ".W";
      if (s.weights == Segment::Weights::early_before_late_behind) all += "+early";
      if (s.all_reduce) all += "+AR";
      if (s.weights == Segment::Weights::early_before_late_behind) all += "+late";
      if (s.weights == Segment::Weights::both_behind) all += "+W";
      all += " ";
    }
    return all;
  };
  for (const BackwardOrder order : {BackwardOrder::suite, BackwardOrder::megatron}) {
    EXPECT_EQ(text(Pass::F, 2, false, order), "attn0.F+AR mlp0.F+AR attn1.F+AR mlp1.F+AR ");
    EXPECT_EQ(text(Pass::F, 1, true, order), "attn0.F+AR mlp0.F+AR head0.F ");
    EXPECT_EQ(text(Pass::F, 0, true, order), "head0.F ");
    EXPECT_EQ(text(Pass::I, 2, false, order), "mlp1.I+AR attn1.I+AR mlp0.I+AR attn0.I+AR ");
    EXPECT_EQ(text(Pass::I, 1, true, order), "head0.I mlp0.I+AR attn0.I+AR ");
    EXPECT_EQ(text(Pass::W, 2, false, order), "mlp1.W attn1.W mlp0.W attn0.W ");
    EXPECT_EQ(text(Pass::W, 1, true, order), "head0.W mlp0.W attn0.W ");
    EXPECT_EQ(text(Pass::B, 0, true, order), "head0.I+W ");
    for (const Pass pass : {Pass::F, Pass::I, Pass::W, Pass::B}) EXPECT_EQ(text(pass, 0, false, order), "");
  }
  EXPECT_EQ(text(Pass::B, 2, true, BackwardOrder::suite),
            "head0.I+W mlp1.I+AR+W attn1.I+AR+W mlp0.I+AR+W attn0.I+AR+W ");
  EXPECT_EQ(text(Pass::B, 1, false, BackwardOrder::suite), "mlp0.I+AR+W attn0.I+AR+W ");
  EXPECT_EQ(
      text(Pass::B, 2, true, BackwardOrder::megatron),
      "head0.I+W mlp1.I+early+AR+late attn1.I+early+AR+late mlp0.I+early+AR+late attn0.I+early+AR+late ");
  // Computed again: each layer before its own backward, the head never, and W alone has nothing to do it for.
  EXPECT_EQ(text(Pass::B, 2, true, BackwardOrder::suite, {.recompute = true}),
            "head0.I+W attn1.F+AR mlp1.F+AR mlp1.I+AR+W attn1.I+AR+W "
            "attn0.F+AR mlp0.F+AR mlp0.I+AR+W attn0.I+AR+W ");
  EXPECT_EQ(text(Pass::I, 1, false, BackwardOrder::suite, {.recompute = true}),
            "attn0.F+AR mlp0.F+AR mlp0.I+AR attn0.I+AR ");
  EXPECT_EQ(text(Pass::F, 1, true, BackwardOrder::suite, {.recompute = true}),
            "attn0.F+AR mlp0.F+AR head0.F ");
  EXPECT_EQ(text(Pass::W, 1, true, BackwardOrder::suite, {.recompute = true}), "head0.W mlp0.W attn0.W ");
  // The embedding comes first and has a weight gradient alone, last.
  const ChainOptions with{.embedding = true};
  EXPECT_EQ(text(Pass::F, 1, true, BackwardOrder::suite, with),
            "embedding0.F+AR attn0.F+AR mlp0.F+AR head0.F ");
  EXPECT_EQ(text(Pass::I, 1, false, BackwardOrder::suite, with), "mlp0.I+AR attn0.I+AR ");
  EXPECT_EQ(text(Pass::B, 1, false, BackwardOrder::suite, with), "mlp0.I+AR+W attn0.I+AR+W embedding0.W ");
  EXPECT_EQ(text(Pass::W, 1, false, BackwardOrder::megatron, with), "mlp0.W attn0.W embedding0.W ");
}

// ---- braids ----

TEST(StaticBraid, IsTheRule) {
  for (int na = 0; na <= 12; ++na)
    for (int nb = 0; nb <= 12; ++nb)
      EXPECT_EQ(static_braid(na, nb), literal_braid(na, nb)) << na << " " << nb;
}

TEST(StaticBraid, OfSmallChainsIsWhatTheRuleGivesByHand) {
  EXPECT_THAT(static_braid(0, 0), IsEmpty());
  EXPECT_THAT(static_braid(0, 2), ElementsAre(1, 1));
  EXPECT_THAT(static_braid(2, 0), ElementsAre(0, 0));
  EXPECT_THAT(static_braid(2, 2), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(static_braid(3, 2), ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(static_braid(2, 3), ElementsAre(0, 1, 1, 0, 1));
  EXPECT_THAT(static_braid(3, 1), ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(static_braid(1, 3), ElementsAre(0, 1, 1, 1));
}

TEST(StaticBraid, TakesEverySegmentOnceStartsWithTheFirstAndKeepsInStep) {
  for (int na = 1; na <= 40; ++na) {
    for (int nb = 1; nb <= 40; ++nb) {
      const std::vector<uint8_t> order = static_braid(na, nb);
      ASSERT_EQ(std::count(order.begin(), order.end(), 0), na);
      ASSERT_EQ(std::count(order.begin(), order.end(), 1), nb);
      EXPECT_EQ(order.front(), 0);
      if (na == nb) {
        EXPECT_EQ(order.back(), 1);
      }
      int i = 0, j = 0;
      for (const uint8_t which : order) {
        ++(which == 0 ? i : j);
        // i/na may lead j/nb by less than one of a's segments and a bit, and trail it by less than one of
        // b's.
        EXPECT_LE(i * nb - j * na, nb) << na << " " << nb;
        EXPECT_GT(i * nb - j * na, -na) << na << " " << nb;
      }
    }
  }
}

TEST(StaticBraid, OfLongChainsDoesNotOverflow) {
  const std::vector<uint8_t> order = static_braid(70000, 65536);
  EXPECT_EQ(std::count(order.begin(), order.end(), 0), 70000);
  int64_t i = 0, j = 0;
  for (const uint8_t which : order) {
    ++(which == 0 ? i : j);
    ASSERT_LE(i * 65536 - j * 70000, 65536);
    ASSERT_GT(i * 65536 - j * 70000, -70000);
  }
}

// ---- lowering: the whole of section 5 ----

constexpr Release kReleases[] = {Release::chain, Release::block, Release::released};

TEST(Lower, ObeysSectionFiveForStpOrders) {
  for (const Release release : kReleases) {
    for (const BackwardOrder backward : {BackwardOrder::suite, BackwardOrder::megatron}) {
      for (const auto& [p, m] : {std::pair{1, 2}, {2, 6}, {3, 9}, {4, 13}}) {
        std::vector<int> layers(2 * p, 2);
        layers.back() = 1;
        const Lowering lowering{release, backward, p % 2 == 0};
        Law(lower(stp_schedule(p, m), layers, lowering), lowering).check();
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Lower, ObeysSectionFiveForRandomOrdersPlacementsAndChunksWithoutLayers) {
  std::mt19937 random(510);
  for (int draw = 0; draw < 400; ++draw) {
    const int p = 1 + static_cast<int>(random() % 4), v = 1 + static_cast<int>(random() % 3);
    const Placement placement = random() % 3 == 0 ? Placement::v(p) : Placement::loop(p, v);
    const Schedule schedule = random_schedule(random, placement, 1 + static_cast<int>(random() % 5));
    const Lowering lowering{kReleases[random() % 3],
                            random() % 2 ? BackwardOrder::suite : BackwardOrder::megatron, random() % 2 == 0};
    const Program program = lower(schedule, random_layers(random, placement.stages()), lowering);
    Law(program, lowering).check();
    ASSERT_FALSE(HasFatalFailure()) << "draw " << draw << ":\n" << to_text(schedule);
  }
}

// ---- lowering: closed forms ----

TEST(Lower, IssuesAsManyOpsOfEachKindAsThePassesSay) {
  std::mt19937 random(511);
  for (int draw = 0; draw < 60; ++draw) {
    const int p = 1 + static_cast<int>(random() % 4), m = 1 + static_cast<int>(random() % 6);
    const Placement placement = draw % 2 ? Placement::v(p) : Placement::loop(p, 2);
    const Schedule schedule = random_schedule(random, placement, m);
    const std::vector<int> layers = random_layers(random, placement.stages());
    const int last = placement.stages() - 1;
    // How many layers, and how often the head, each pass goes through.
    std::map<Pass, int> layer_passes, head_passes;
    for (int rank = 0; rank < p; ++rank) {
      for (const Block& block : schedule.ranks[rank]) {
        for (const Action& action : block.actions()) {
          const int stage = placement.stage(rank, action.chunk);
          layer_passes[action.pass] += layers[stage];
          head_passes[action.pass] += stage == last;
        }
      }
    }
    const int all = m * std::accumulate(layers.begin(), layers.end(), 0);
    ASSERT_EQ(layer_passes[Pass::F], all);
    for (const BackwardOrder order : {BackwardOrder::suite, BackwardOrder::megatron}) {
      Counts counts = count(lower(schedule, layers, {Release::chain, order, false}));
      const bool suite = order == BackwardOrder::suite;
      EXPECT_EQ(counts.of["all-reduce in F"], 2 * all);
      EXPECT_EQ(counts.of["all-reduce in I"], 2 * layer_passes[Pass::I]);
      EXPECT_EQ(counts.of["all-reduce in B"], 2 * layer_passes[Pass::B]);
      EXPECT_EQ(counts.of["all-reduce in W"], 0);
      for (const std::string unit : {"attn", "mlp"}) {
        EXPECT_EQ(counts.of["compute " + unit + ".F"], all);
        EXPECT_EQ(counts.of["compute " + unit + ".I"], all);
        EXPECT_EQ(counts.of["compute " + unit + ".W_early"], suite ? 0 : layer_passes[Pass::B]);
        EXPECT_EQ(counts.of["compute " + unit + ".W"], suite ? 0 : layer_passes[Pass::B]);
        EXPECT_EQ(counts.of["both " + unit], layer_passes[Pass::W] + (suite ? layer_passes[Pass::B] : 0));
      }
      EXPECT_EQ(counts.of["compute head.F"], m);
      EXPECT_EQ(counts.of["compute head.I"], m);
      EXPECT_EQ(counts.of["both head"], m);
      EXPECT_EQ(counts.of["compute head.W"] + counts.of["compute head.W_early"], 0);
      EXPECT_EQ(counts.of["optimizer"], 0);
    }
  }
}

TEST(Lower, SendsOncePerHopBetweenRanksAndDirection) {
  for (int p = 1; p <= 5; ++p) {
    const int m = 3 * p + 1;
    // On a V the turn on the last rank is no hop, nor is the loss on the first.
    EXPECT_EQ(count(lower(stp_schedule(p, m), std::vector<int>(2 * p, 1), {})).of["transfer"],
              2 * m * 2 * (p - 1));
    std::mt19937 random(p);
    for (int v = 1; v <= 3; ++v) {
      const Schedule loop = random_schedule(random, Placement::loop(p, v), m);
      EXPECT_EQ(count(lower(loop, std::vector<int>(p * v, 1), {})).of["transfer"],
                p == 1 ? 0 : 2 * m * (p * v - 1));
    }
  }
}

TEST(Lower, MergesTheTransfersOfTwoForwardsWhereReleased) {
  for (int p = 2; p <= 6; ++p) {
    const Schedule schedule = stp_schedule(p, 3 * p);
    int pairs = 0;  // of forwards of one chunk whose output goes to another rank
    for (int rank = 0; rank < p; ++rank)
      for (const Block& block : schedule.ranks[rank])
        pairs += block.braided() && block.actions()[1].pass == Pass::F && rank + 1 < p;
    ASSERT_GT(pairs, p == 2 ? -1 : 0);
    const int hops = 2 * 3 * p * 2 * (p - 1);
    Counts apart =
        count(lower(schedule, std::vector<int>(2 * p, 1), {Release::block, BackwardOrder::suite, false}));
    Counts merged =
        count(lower(schedule, std::vector<int>(2 * p, 1), {Release::released, BackwardOrder::suite, false}));
    EXPECT_EQ(apart.of["transfer"], hops);
    EXPECT_EQ(apart.tensors, hops);
    EXPECT_EQ(merged.of["transfer"], hops - pairs);
    EXPECT_EQ(merged.tensors, hops);
  }
}

// The dependencies of the op that reads as `text`, as texts.
Texts waits_of(const Program& program, int rank, const std::string& text) {
  for (OpId op = program.rank_begin[rank]; op < program.rank_begin[rank + 1]; ++op) {
    if (op_text(program, op) != text) continue;
    Texts texts;
    for (const OpId needed : program.dependencies(op))
      texts.push_back(std::to_string(program.stream_of(needed).rank) + " " + op_text(program, needed));
    return texts;
  }
  return {"there is no " + text};
}

const Schedule& two_ranks() {
  static const Schedule schedule = by_hand(
      Placement::loop(2, 1), 2, {{"F0.0", "F0.1", "B0.0", "I0.1", "W0.1"}, {"F0.0", "F0.1&B0.0", "B0.1"}});
  return schedule;
}

TEST(LowerByHand, AChainLetsItsOutputLeaveWhenItsOwnMainLineIsDone) {
  const Program program = lower(two_ranks(), {1, 1}, {});
  EXPECT_THAT(waits_of(program, 0, "F0.1: attn.F0"), IsEmpty());
  EXPECT_THAT(waits_of(program, 0, "F0.1: AR attn.F0"), ElementsAre("0 F0.1: attn.F0"));
  EXPECT_THAT(waits_of(program, 0, "F0.1: mlp.F0"), ElementsAre("0 F0.1: AR attn.F0"));
  EXPECT_THAT(waits_of(program, 0, "F0.1: send 1 to 1"), ElementsAre("0 F0.1: AR mlp.F0"));
  EXPECT_THAT(waits_of(program, 1, "F0.1: attn.F0"), ElementsAre("0 F0.1: send 1 to 1"));
  EXPECT_THAT(waits_of(program, 1, "F0.1: head.F"), ElementsAre("1 F0.1: AR mlp.F0"));
  EXPECT_THAT(waits_of(program, 1, "B0.0: head.I"), ElementsAre("1 F0.0: head.F"));
  EXPECT_THAT(waits_of(program, 1, "B0.0: head.W both"), IsEmpty());
  EXPECT_THAT(waits_of(program, 1, "B0.0: mlp.I0"), IsEmpty());  // head.I is before it on its stream
  EXPECT_THAT(waits_of(program, 1, "B0.0: mlp.W both0"), IsEmpty());
  EXPECT_THAT(waits_of(program, 1, "B0.0: send 1 to 0"), ElementsAre("1 B0.0: AR attn.I0"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: mlp.I0"), ElementsAre("1 B0.0: send 1 to 0"));
  EXPECT_THAT(waits_of(program, 0, "W0.1: mlp.W both0"), IsEmpty());
}

TEST(LowerByHand, ABlockHoldsItsInputsAndOutputsTogether) {
  const Program program = lower(two_ranks(), {1, 1}, {Release::block, BackwardOrder::suite, false});
  // F0.0's head.F and last all-reduce are what B0.0 waits for: with its whole block.
  EXPECT_THAT(waits_of(program, 1, "F0.1: attn.F0"),
              ElementsAre("0 F0.1: send 1 to 1", "1 F0.0: head.F", "1 F0.0: AR mlp.F0"));
  EXPECT_THAT(waits_of(program, 1, "B0.0: head.I"), IsEmpty());
  EXPECT_THAT(waits_of(program, 1, "B0.0: send 1 to 0"),
              ElementsAre("1 B0.0: attn.W both0", "1 B0.0: AR attn.I0"));
  EXPECT_THAT(waits_of(program, 1, "B0.1: head.I"),
              ElementsAre("1 B0.0: attn.W both0", "1 B0.0: AR attn.I0"));
  EXPECT_THAT(waits_of(program, 0, "F0.1: attn.F0"), IsEmpty());
}

TEST(LowerByHand, AReleasedBlockWaitsForTheSendsOfTheBlockBefore) {
  const Program program = lower(two_ranks(), {1, 1}, {Release::released, BackwardOrder::suite, false});
  EXPECT_THAT(waits_of(program, 0, "F0.1: attn.F0"), ElementsAre("0 F0.0: send 1 to 1"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: mlp.I0"),
              ElementsAre("1 B0.0: send 1 to 0", "0 F0.1: send 1 to 1"));
}

TEST(LowerByHand, TwoReleasedForwardsRunOneAfterTheOtherAndTravelTogether) {
  const Schedule schedule =
      by_hand(Placement::loop(2, 1), 2, {{"F0.0&F0.1", "B0.0", "B0.1"}, {"F0.0", "B0.0", "F0.1", "B0.1"}});
  const Program program = lower(schedule, {1, 1}, {Release::released, BackwardOrder::suite, false});
  EXPECT_THAT(waits_of(program, 0, "F0.1: attn.F0"), ElementsAre("0 F0.0: AR mlp.F0"));
  EXPECT_THAT(waits_of(program, 0, "F0.0: send 2 to 1"), ElementsAre("0 F0.1: mlp.F0", "0 F0.1: AR mlp.F0"));
  EXPECT_THAT(waits_of(program, 1, "F0.0: attn.F0"), ElementsAre("0 F0.0: send 2 to 1"));
  EXPECT_THAT(waits_of(program, 1, "F0.1: attn.F0"), testing::Contains("0 F0.0: send 2 to 1"));
  const Program braided = lower(schedule, {1, 1}, {Release::block, BackwardOrder::suite, false});
  EXPECT_THAT(waits_of(braided, 0, "F0.1: attn.F0"), IsEmpty());
  EXPECT_THAT(waits_of(braided, 0, "F0.1: send 1 to 1"), ElementsAre("0 F0.1: mlp.F0", "0 F0.1: AR mlp.F0"));
}

TEST(LowerByHand, WithoutBraidsEachActionIsABlockOfItsOwn) {
  const Lowering sequential{Release::block, BackwardOrder::suite, false, BraidPolicy::sequential};
  const Program program = lower(two_ranks(), {1, 1}, sequential);
  EXPECT_THAT(waits_of(program, 1, "F0.1: attn.F0"), ElementsAre("0 F0.1: send 1 to 1"));
  EXPECT_THAT(waits_of(program, 1, "B0.0: head.I"), ElementsAre("1 F0.0: head.F", "1 F0.0: AR mlp.F0"));
  EXPECT_EQ(program.schedule.ranks[1].size(), 4);
  // The same program as the order without braids, written out.
  const Schedule apart = by_hand(
      Placement::loop(2, 1), 2, {{"F0.0", "F0.1", "B0.0", "I0.1", "W0.1"}, {"F0.0", "F0.1", "B0.0", "B0.1"}});
  for (const Release release : {Release::chain, Release::block, Release::released}) {
    const Program of_braids =
        lower(two_ranks(), {1, 1}, {release, BackwardOrder::suite, false, BraidPolicy::sequential});
    const Program plain = lower(apart, {1, 1}, {release, BackwardOrder::suite, false});
    EXPECT_EQ(of_braids.depends, plain.depends);
    EXPECT_EQ(of_braids.depends_begin, plain.depends_begin);
    EXPECT_EQ(of_braids.ops.size(), plain.ops.size());
  }
}

TEST(LowerByHand, TheEarlyWeightGradientsStandBeforeTheAllReduce) {
  const Schedule schedule = by_hand(Placement::loop(1, 1), 1, {{"F0.0", "B0.0"}});
  const Program program = lower(schedule, {1}, {Release::chain, BackwardOrder::megatron, false});
  EXPECT_THAT(waits_of(program, 0, "B0.0: mlp.W_early0"), IsEmpty());
  EXPECT_THAT(waits_of(program, 0, "B0.0: AR mlp.I0"), ElementsAre("0 B0.0: mlp.W_early0"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: mlp.W0"), IsEmpty());
  EXPECT_THAT(waits_of(program, 0, "B0.0: attn.I0"), ElementsAre("0 B0.0: AR mlp.I0"));
}

TEST(LowerByHand, SequenceParallelismHidesTheReduceScatterBehindWeightGradientsAndNotTheAllGather) {
  const Schedule schedule = by_hand(Placement::loop(1, 1), 2, {{"F0.0", "B0.0", "F0.1", "I0.1", "W0.1"}});
  const Lowering lowering{.backward = BackwardOrder::megatron, .sequence_parallel = true};
  const Program program = lower(schedule, {1}, lowering);
  EXPECT_THAT(waits_of(program, 0, "F0.0: RS attn.F0"), ElementsAre("0 F0.0: attn.F0"));
  EXPECT_THAT(waits_of(program, 0, "F0.0: mlp.F0"), ElementsAre("0 F0.0: AG attn.F0"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: RS mlp.I0"), ElementsAre("0 B0.0: mlp.W_early0"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: mlp.W0"), IsEmpty());
  EXPECT_THAT(waits_of(program, 0, "B0.0: AG mlp.I0"), ElementsAre("0 B0.0: mlp.W0"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: attn.I0"), ElementsAre("0 B0.0: AG mlp.I0"));
  EXPECT_THAT(waits_of(program, 0, "I0.1: AG mlp.I0"), ElementsAre("0 I0.1: mlp.I0"));
  EXPECT_THAT(waits_of(program, 0, "I0.1: attn.I0"), ElementsAre("0 I0.1: AG mlp.I0"));
  const Program plain = lower(schedule, {1}, {.backward = BackwardOrder::megatron});
  Counts with = count(program), without = count(plain);
  EXPECT_EQ(program.ops.size() - plain.ops.size(), 8U);  // one more per all-reduce
  for (const std::string pass : {"F", "I", "B"}) {
    EXPECT_EQ(with.of["all-reduce in " + pass], 0);
    EXPECT_EQ(with.of["reduce-scatter in " + pass], without.of["all-reduce in " + pass]);
    EXPECT_EQ(with.of["all-gather in " + pass], without.of["all-reduce in " + pass]);
  }
}

TEST(LowerByHand, TheEmbeddingIsOnTheFirstVirtualStageAloneAndItsGradientWaitsForTheLastAllReduce) {
  const Schedule schedule = by_hand(
      Placement::v(2), 1, {{"F0.0", "F1.0", "I1.0", "W1.0", "B0.0"}, {"F0.0", "F1.0", "B1.0", "B0.0"}});
  const Program program = lower(schedule, {1, 1, 1, 1}, {.embedding = true});
  EXPECT_THAT(waits_of(program, 0, "F0.0: embedding.F"), IsEmpty());
  EXPECT_THAT(waits_of(program, 0, "F0.0: AR embedding.F"), ElementsAre("0 F0.0: embedding.F"));
  EXPECT_THAT(waits_of(program, 0, "F0.0: attn.F0"), ElementsAre("0 F0.0: AR embedding.F"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: embedding.W both"), ElementsAre("0 B0.0: AR attn.I0"));
  const Program plain = lower(schedule, {1, 1, 1, 1}, {});
  EXPECT_EQ(program.ops.size(), plain.ops.size() + 3);
}

TEST(LowerByHand, ARecomputedLayerWaitsForTheGradientAndItsBackwardForIt) {
  const Schedule schedule = by_hand(Placement::loop(2, 1), 1, {{"F0.0", "B0.0"}, {"F0.0", "B0.0"}});
  const Program program = lower(schedule, {1, 1}, {.recompute = true});
  EXPECT_THAT(waits_of(program, 0, "B0.0: attn.F0"), ElementsAre("1 B0.0: send 1 to 0"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: mlp.F0"), ElementsAre("0 B0.0: AR attn.F0"));
  EXPECT_THAT(waits_of(program, 0, "B0.0: mlp.I0"), ElementsAre("0 B0.0: AR mlp.F0"));
  EXPECT_THAT(waits_of(program, 1, "B0.0: send 1 to 0"), ElementsAre("1 B0.0: AR attn.I0"));
  EXPECT_EQ(count(program).of["all-reduce in B"], 8);
}

TEST(LowerByHand, AChunkWithoutLayersPassesItsInputOn) {
  const Schedule schedule =
      by_hand(Placement::loop(3, 1), 1, {{"F0.0", "B0.0"}, {"F0.0", "I0.0", "W0.0"}, {"F0.0", "B0.0"}});
  for (const Release release : kReleases) {
    const Program program = lower(schedule, {1, 0, 0}, {release, BackwardOrder::suite, false});
    EXPECT_EQ(program.rank_begin[2] - program.rank_begin[1], 2U);
    EXPECT_THAT(waits_of(program, 1, "F0.0: send 1 to 2"), ElementsAre("0 F0.0: send 1 to 1"));
    EXPECT_THAT(waits_of(program, 1, "I0.0: send 1 to 0"), ElementsAre("2 B0.0: send 1 to 1"));
    EXPECT_THAT(waits_of(program, 2, "F0.0: head.F"), ElementsAre("1 F0.0: send 1 to 2"));
  }
  // On one rank it leaves no trace at all.
  const Schedule turn = by_hand(Placement::v(1), 1, {{"F0.0", "F1.0", "B1.0", "B0.0"}});
  const Program program = lower(turn, {0, 1}, {});
  EXPECT_THAT(waits_of(program, 0, "F1.0: attn.F0"), IsEmpty());
  EXPECT_EQ(count(program).of["transfer"], 0);
}

TEST(LowerByHand, TheTurnOfTheVHandsOverWithoutATransfer) {
  const Schedule schedule =
      by_hand(Placement::v(2), 1, {{"F0.0", "F1.0", "B1.0", "B0.0"}, {"F0.0", "F1.0", "B1.0", "B0.0"}});
  const Program program = lower(schedule, {1, 1, 1, 1}, {});
  EXPECT_THAT(waits_of(program, 1, "F1.0: attn.F0"), ElementsAre("1 F0.0: AR mlp.F0"));
  EXPECT_THAT(waits_of(program, 1, "B0.0: mlp.I0"), ElementsAre("1 B1.0: AR attn.I0"));
}

TEST(Lower, SendsOnEachLinkInTheSendersProgramOrder) {
  std::mt19937 random(512);
  for (int draw = 0; draw < 100; ++draw) {
    const int p = 2 + static_cast<int>(random() % 3);
    const Placement placement = random() % 2 ? Placement::v(p) : Placement::loop(p, 2);
    const Schedule schedule = random_schedule(random, placement, 4);
    const Program program = lower(schedule, std::vector<int>(placement.stages(), 1), {});
    std::map<std::pair<int, int>, Texts> expected, sent;
    for (int rank = 0; rank < p; ++rank) {
      for (const Block& block : schedule.ranks[rank]) {
        for (const Action& action : block.actions()) {
          const int stage = placement.stage(rank, action.chunk),
                    next = stage + (action.pass == Pass::F ? 1 : -1);
          if (action.pass == Pass::W || next < 0 || next == placement.stages() ||
              placement.rank_of(next) == rank)
            continue;
          expected[{rank, placement.rank_of(next)}].push_back(to_string(action));
        }
      }
    }
    for (OpId op = 0; op < program.ops.size(); ++op) {
      const ProgramStream& stream = program.stream_of(op);
      if (stream.kind == StreamKind::p2p)
        sent[{stream.rank, stream.peer}].push_back(
            to_string(Action{program.ops[op].pass, program.ops[op].chunk, program.ops[op].microbatch}));
    }
    EXPECT_EQ(sent, expected);
  }
}

TEST(Lower, EndsEachRankWithAnOptimizerOpThatWaitsForNothingButItsStream) {
  const Program program =
      lower(stp_schedule(3, 8), std::vector<int>(6, 1), {Release::chain, BackwardOrder::suite, true});
  for (int rank = 0; rank < 3; ++rank) {
    const OpId last = program.rank_begin[rank + 1] - 1;
    EXPECT_EQ(program.ops[last].kind, OpKind::optimizer);
    EXPECT_EQ(program.ops[last].block, -1);
    EXPECT_EQ(program.stage_of(last), -1);
    EXPECT_EQ(program.stream_of(last).kind, StreamKind::compute);
    EXPECT_THAT(program.dependencies(last), IsEmpty());
  }
  EXPECT_EQ(count(program).of["optimizer"], 3);
}

TEST(Program, KnowsTheStageOfEveryOp) {
  const Program program = lower(stp_schedule(2, 5), {2, 1, 1, 2}, {});
  for (OpId op = 0; op < program.ops.size(); ++op) {
    const int rank = program.stream_of(op).rank;
    EXPECT_EQ(program.stage_of(op), program.ops[op].chunk == 0 ? rank : 3 - rank);
  }
}

TEST(Program, DescribesItsOpsByRankStreamAndAction) {
  const Program program = lower(two_ranks(), {1, 2}, {Release::chain, BackwardOrder::megatron, true});
  std::set<std::string> texts;
  for (OpId op = 0; op < program.ops.size(); ++op) texts.insert(describe(program, op));
  for (const char* text :
       {"rank 1, compute, mlp.I of B0.0, layer 1", "rank 1, compute, mlp.W_early of B0.0, layer 1",
        "rank 1, tp, all-reduce of attn.I of B0.0, layer 0", "rank 0, compute, mlp.W of W0.1, layer 0",
        "rank 0, p2p, transfer to rank 1 of F0.1", "rank 1, compute, head.F of F0.1",
        "rank 0, compute, optimizer"})
    EXPECT_TRUE(texts.contains(text)) << text;
}

// ---- refusals ----

TEST(Lower, RefusesAnyOtherNumberOfLayersPerChunkThanThereAreVirtualStages) {
  for (const size_t entries : {0, 3, 5, 8})
    EXPECT_THAT(refusal([&] { lower(stp_schedule(2, 5), std::vector<int>(entries, 1), {}); }),
                AllOf(StartsWith("layers_per_chunk: has " + std::to_string(entries) + " entries"),
                      HasSubstr("2 ranks"), HasSubstr("2 chunk"), HasSubstr("; write 4 entries")));
}

TEST(Lower, RefusesNegativeAndHugeNumbersOfLayers) {
  const Schedule one = by_hand(Placement::loop(1, 1), 1, {{"F0.0", "B0.0"}});
  for (const int layers : {-1, 32768, 2147483647})
    EXPECT_THAT(refusal([&] { lower(one, {layers}, {}); }),
                AllOf(StartsWith("layers_per_chunk: " + std::to_string(layers) + " is out of range"),
                      HasSubstr("32767")));
  const Program program = lower(one, {32767}, {});
  EXPECT_EQ(program.ops.size(), 32767U * 2 * 2 + 1 + 32767U * 2 * 3 + 2);
  EXPECT_EQ(program.ops[program.ops.size() - 1].layer, 0);
}

TEST(Lower, RefusesAProgramOfMoreOpsThanThereIsRoomForBeforeItMakesThem) {
  Schedule schedule{"long", Placement::loop(1, 1), 300, {{}}};
  for (int m = 0; m < schedule.microbatches; ++m)
    for (const Pass pass : {Pass::F, Pass::B}) schedule.ranks[0].emplace_back(Action{pass, 0, m});
  // 327 673 ops a microbatch: 204 of them fit.
  EXPECT_THAT(refusal([&] { lower(schedule, {32767}, {}); }),
              AllOf(StartsWith("microbatches: "),
                    HasSubstr("more than " + std::to_string(kMaxOps) + " ops; use fewer")));
}

}  // namespace
}  // namespace stp
