#include "stp/report/chrome_trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "stp/cost/unit_costs.h"
#include "stp/program/lower.h"
#include "stp/schedule/generator.h"

namespace stp {

extern const Generator schedule_stp;

namespace {

using nlohmann::json;

template <typename... Options>
json trace_of(const Program& program, const Timeline& timeline, const Options&... options) {
  std::ostringstream text;
  write_chrome_trace(text, program, timeline, options...);
  return json::parse(text.str());
}

// The paper's schedule at costs that leave bubbles of both kinds, and its trace.
class ChromeTrace : public ::testing::Test {
 protected:
  ChromeTrace() {
    const json costs = {{"attn.F", 0.4}, {"attn.I", 0.5},     {"attn.W", 0.3}, {"mlp.F", 0.7},
                        {"mlp.I", 0.6},  {"mlp.W", 0.5},      {"head.F", 0.2}, {"head.I", 0.1},
                        {"head.W", 0.1}, {"all_reduce", 0.3}, {"p2p", 0.05}};
    program_ = lower(make_schedule(schedule_stp, {.pp = 3, .microbatches = 9}), {2, 1, 2, 1, 2, 1},
                     {.optimizer = true});
    timeline_ =
        simulate(program_, op_seconds(program_, unit_cost_table(JsonInput(costs, "test"))), {0.8, 0.9});
    events_ = trace_of(program_, timeline_).at("traceEvents");
    for (const json& event : events_)
      if (event.at("ph") == "X") slices_.push_back(event);
  }

  static int64_t nanoseconds(const json& microseconds) {
    return std::llround(microseconds.get<double>() * 1000);
  }

  Program program_{.schedule = {"", Placement::v(1), 0, {}}};
  Timeline timeline_;
  json events_, slices_;
};

TEST_F(ChromeTrace, OfTheEndsHasTheirBlocksAsTheyAreInTheWhole) {
  const json whole = trace_of(program_, timeline_, "", "s", 2);
  EXPECT_EQ(whole.at("otherData").at("left_out"), "microbatches 2 to 6");
  const auto of_ends = [](const json& slice) {
    const json& args = slice.at("args");
    const std::string block = slice.at("cat") == "block" ? slice.at("name") : args.value("block", json(""));
    if (block.empty()) return true;  // the optimizer
    for (const char* microbatch : {".0", ".1", ".7", ".8"})
      if (block.find(microbatch) != std::string::npos) return true;
    return false;
  };
  json expected = json::array(), found = json::array();
  std::map<int, std::multiset<std::string>> arrows;
  std::ranges::copy_if(slices_, std::back_inserter(expected), of_ends);
  for (const json& event : whole.at("traceEvents"))
    if (event.at("ph") == "X")
      found.push_back(event);
    else if (event.contains("id"))
      arrows[event.at("id")].insert(event.at("ph"));
  EXPECT_EQ(found, expected);
  EXPECT_LT(found.size(), slices_.size());
  EXPECT_FALSE(arrows.empty());
  for (const auto& [id, phases] : arrows) EXPECT_EQ(phases, (std::multiset<std::string>{"f", "s"})) << id;
}

TEST_F(ChromeTrace, HasOneSlicePerOp) {
  std::map<std::string, int> slices;
  std::multiset<std::pair<int64_t, int64_t>> traced, simulated;  // start, length
  int64_t blocks = 0;
  for (const json& event : slices_) {
    ++slices[event.at("cat")];
    if (event.at("cat") == "block")
      ++blocks;
    else
      traced.emplace(nanoseconds(event.at("ts")), nanoseconds(event.at("dur")));
  }
  std::map<std::string, int> ops;
  for (OpId op = 0; op < program_.ops.size(); ++op) {
    ++ops[to_string(program_.stream_of(op).kind)];
    const int64_t start = std::llround(timeline_.start[op] * 1e9);
    simulated.emplace(start, std::llround(timeline_.end[op] * 1e9) - start);
  }
  for (const auto& blocks_of_rank : program_.schedule.ranks)
    ops["block"] += static_cast<int>(blocks_of_rank.size());
  EXPECT_EQ(slices, ops);
  EXPECT_EQ(traced, simulated);
  EXPECT_GT(blocks, 0);
}

TEST_F(ChromeTrace, SlicesOfAThreadNest) {
  std::map<std::pair<int, int>, std::vector<std::pair<int64_t, int64_t>>>
      threads;  // (pid, tid) → (start, −end)
  for (const json& event : slices_) {
    const int64_t start = nanoseconds(event.at("ts"));
    threads[{event.at("pid"), event.at("tid")}].emplace_back(start, -(start + nanoseconds(event.at("dur"))));
  }
  EXPECT_EQ(threads.size(), program_.streams.size());
  for (auto& [thread, slices] : threads) {
    std::sort(slices.begin(), slices.end());
    std::vector<int64_t> open;  // ends of the slices around
    for (const auto& [start, minus_end] : slices) {
      while (!open.empty() && open.back() <= start) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(-minus_end, open.back()) << "rank " << thread.first << ", thread " << thread.second;
      }
      open.push_back(-minus_end);
      EXPECT_LE(open.size(), 2U);
    }
  }
}

TEST_F(ChromeTrace, NamesRanksStreamsAndOps) {
  std::set<std::string> processes, threads, names;
  for (const json& event : events_) {
    if (event.at("name") == "process_name") processes.insert(event.at("args").at("name"));
    if (event.at("name") == "thread_name") threads.insert(event.at("args").at("name"));
  }
  for (const json& event : slices_) {
    names.insert(event.at("name"));
    if (event.at("name") == "mlp.I B0.3") {
      EXPECT_EQ(event.at("args").at("action"), "B0.3");
      EXPECT_EQ(event.at("args").at("unit"), "mlp");
      EXPECT_TRUE(event.at("args").at("layer").is_number_integer());
      EXPECT_TRUE(event.at("args").at("block").is_string());
    }
  }
  EXPECT_EQ(processes, (std::set<std::string>{"rank 0", "rank 1", "rank 2"}));
  EXPECT_EQ(threads,
            (std::set<std::string>{"compute", "tp", "p2p to rank 0", "p2p to rank 1", "p2p to rank 2"}));
  for (const char* name : {"mlp.I B0.3", "all-reduce attn.F F0.0", "send F0.0", "head.F F1.0", "optimizer"})
    EXPECT_TRUE(names.count(name)) << name;
}

// The waits that slices name add up to the TP bubble; under sequence parallelism some are shorter than the
// gap.
TEST_F(ChromeTrace, WaitsForOwnCollectivesAreTheTpBubble) {
  const json costs = {{"attn.F", 1}, {"attn.I", 1}, {"mlp.F", 1}, {"mlp.I", 1}, {"p2p", 1}};
  CostTable table = unit_cost_table(JsonInput(costs, "test"));
  table.reduce_scatter = 0.4;
  table.all_gather = 0.3;
  for (const bool split : {false, true}) {
    if (split) {
      program_ = lower(make_schedule(schedule_stp, {.pp = 3, .microbatches = 9}), {2, 1, 2, 1, 2, 1},
                       {.strategy = {.sequence_parallel = true}});
      timeline_ = simulate(program_, op_seconds(program_, table));
      slices_ = trace_of(program_, timeline_).at("traceEvents");
    }
    std::map<int, int64_t> waited, gaps, computed_until;
    std::set<std::string> names;
    for (const json& event : slices_) {
      if (event.at("ph") != "X" || event.at("cat") != "compute") continue;
      const int rank = event.at("pid");
      const int64_t start = nanoseconds(event.at("ts"));
      if (const json& args = event.at("args"); args.contains("tp_bubble")) {
        names.insert(args.at("waited_for"));
        waited[rank] += nanoseconds(args.at("tp_bubble"));
        gaps[rank] += start - computed_until[rank];
      }
      computed_until[rank] = start + nanoseconds(event.at("dur"));
    }
    EXPECT_EQ(names, std::set<std::string>{split ? "all-gather" : "all-reduce"});
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_GT(waited[rank], 0);
      EXPECT_NEAR(static_cast<double>(waited[rank]), timeline_.ranks[rank].tp_bubble_s * 1e9, 1e3);
    }
    EXPECT_EQ(split, gaps[0] > waited[0] + 1000);
  }
}

TEST_F(ChromeTrace, ArrowsLeadForwardInTimeFromEveryTransfer) {
  std::map<int, std::pair<int64_t, int64_t>> arrows;
  for (const json& event : events_) {
    if (event.at("ph") == "s") arrows[event.at("id")].first = nanoseconds(event.at("ts"));
    if (event.at("ph") == "f") arrows[event.at("id")].second = nanoseconds(event.at("ts"));
  }
  size_t transfers = 0;
  for (const Op& op : program_.ops) transfers += op.kind == OpKind::transfer;
  EXPECT_EQ(arrows.size(), transfers);
  for (const auto& [id, ends] : arrows) EXPECT_LE(ends.first, ends.second) << id;
}

TEST(ChromeTraceText, EscapesNames) {
  Program program = lower(make_schedule(schedule_stp, {.pp = 1, .microbatches = 2}), {1, 1}, {});
  program.schedule.name = "a \"b\" \\ \n \xff";
  const Timeline timeline = simulate(program, std::vector<double>(program.ops.size(), 0.0));
  const json other = trace_of(program, timeline, "c \"d\"", "unit times").at("otherData");
  EXPECT_EQ(other.at("schedule"), "a \"b\" \\ \n \xef\xbf\xbd");
  EXPECT_EQ(other.at("title"), "c \"d\"");
  EXPECT_EQ(other.at("time_unit"), "unit times");
}

// By name of an op of one microbatch, what it waited for; and the number of exchanges.
std::pair<std::map<std::string, std::string>, int> waited_for(const Strategy& strategy, const char* cost) {
  const json costs = {{"attn.F_core", 1}, {"attn.F_after", 1}, {"attn.I_core", 1}, {"attn.I_after", 1},
                      {"mlp.F", 1},       {cost, 3},           {"all_reduce", 2}};
  const Program program =
      lower({"by hand", Placement::loop(1, 1), 1, {{parse_block("F0.0"), parse_block("B0.0")}}}, {1},
            {.strategy = strategy});
  const Timeline timeline =
      simulate(program, op_seconds(program, unit_cost_table(JsonInput(costs, "test"), strategy)));
  std::map<std::string, std::string> waited;
  int exchanges = 0;
  const json trace = trace_of(program, timeline);
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    exchanges += event.at("cat") == "cp";
    if (event.at("args").contains("waited_for")) waited[event.at("name")] = event["args"]["waited_for"];
  }
  return {waited, exchanges};
}

TEST(ChromeTraceOfARing, SaysWhatAnOpWaitedFor) {
  const auto [waited, exchanges] = waited_for({.cp = 2}, "kv_exchange");
  EXPECT_EQ(exchanges, 1 + 1 + 2);
  EXPECT_EQ(waited.at("mlp.F F0.0"), "all-reduce");
  EXPECT_EQ(waited.at("attn.I_before B0.0"), "all-reduce");
  EXPECT_EQ(waited.at("attn.F_core F0.0"), "key-value exchange");
  EXPECT_EQ(waited.at("attn.I_core B0.0"), "key-value exchange");
  EXPECT_EQ(waited.at("attn.I_after B0.0"), "key-value exchange");
}

TEST(ChromeTraceOfAllToAlls, SaysWhatAnOpWaitedFor) {
  const auto [waited, exchanges] = waited_for({.cp = 4, .cp_method = CpMethod::all_to_all}, "all_to_all");
  EXPECT_EQ(exchanges, 2 + 2);
  EXPECT_EQ(waited.at("attn.F_core F0.0"), "all-to-all");
  EXPECT_EQ(waited.at("attn.F_after F0.0"), "all-to-all");
  EXPECT_EQ(waited.at("attn.I_after B0.0"), "all-to-all");
}

}  // namespace
}  // namespace stp
