#include "stp/report/timeline_svg.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "stp/cost/cost_table.h"
#include "stp/program/lower.h"
#include "stp/schedule/generator.h"

namespace stp {

extern const Generator schedule_stp;

namespace {

using nlohmann::json;

struct Step {
  Program program;
  Timeline timeline;
};

Step step_of(Schedule schedule, const std::vector<int>& layers, const json& costs,
             const Lowering& lowering = {}) {
  Step step{lower(std::move(schedule), layers, lowering), {}};
  step.timeline = simulate(step.program, op_seconds(step.program, unit_cost_table(JsonInput(costs, "test"))));
  return step;
}

json costs() {
  return {{"attn.F", 0.4}, {"attn.I", 0.5}, {"attn.W", 0.3},      {"mlp.F", 0.7},
          {"mlp.I", 0.6},  {"mlp.W", 0.5},  {"all_reduce", 0.35}, {"p2p", 0.05}};
}

Step stp_step(int p, int m, int layers) {
  return step_of(make_schedule(schedule_stp, {.pp = p, .microbatches = m}), std::vector<int>(2 * p, layers),
                 costs());
}

// Each start tag has its end tag, and no & or < stands alone.
void expect_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  size_t at = xml.find("?>");
  ASSERT_NE(at, std::string::npos);
  at += 2;
  size_t roots = 0;
  while ((at = xml.find('<', at)) != std::string::npos) {
    const size_t end = xml.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = xml.substr(at + 1, end - at - 1);
    ASSERT_EQ(tag.find('<'), std::string::npos) << tag;
    ASSERT_EQ(std::count(tag.begin(), tag.end(), '"') % 2, 0) << tag;
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty()) << tag;
      ASSERT_EQ(tag.substr(1), open.back());
      open.pop_back();
    } else if (tag.back() != '/') {
      roots += open.empty();
      open.push_back(tag.substr(0, tag.find_first_of(" \n")));
    }
    at = end + 1;
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(roots, 1U);
  for (size_t i = xml.find('&'); i != std::string::npos; i = xml.find('&', i + 1)) {
    const std::string entity = xml.substr(i, xml.find(';', i) - i);
    EXPECT_TRUE(entity == "&amp" || entity == "&lt" || entity == "&gt" || entity == "&quot") << entity;
  }
}

struct Piece {
  double from, to;
  std::string fill;
};
struct Track {
  std::vector<Piece> pieces;

  [[nodiscard]] double length(const std::string& fill = "") const {
    double sum = 0;
    for (const Piece& piece : pieces) sum += fill.empty() || piece.fill == fill ? piece.to - piece.from : 0;
    return sum;
  }
};

// What the groups of that class draw, one per rank: paths as "M<from> <y>H<to>v<height>H<from>z…".
std::vector<Track> tracks(const std::string& svg, const std::string& group) {
  std::vector<Track> found;
  const std::string head = "<g class=\"" + group + "\"", path = "<path fill=\"";
  for (size_t at = svg.find(head); at != std::string::npos; at = svg.find(head, at + 1)) {
    const size_t end = svg.find("</g>", at);
    Track track;
    for (size_t i = svg.find(path, at); i < end; i = svg.find(path, i + 1)) {
      const std::string fill = svg.substr(i + path.size(), svg.find('"', i + path.size()) - i - path.size());
      const size_t stop = svg.find('>', i);
      for (size_t move = svg.find('M', i); move < stop; move = svg.find('M', move + 1)) {
        const char* text = svg.c_str() + move + 1;
        track.pieces.push_back(
            {std::strtod(text, nullptr), std::strtod(std::strchr(text, 'H') + 1, nullptr), fill});
      }
    }
    found.push_back(std::move(track));
  }
  return found;
}

constexpr double kRounding = 0.011;  // coordinates have two decimals

void expect_no_overlap(Track track) {
  std::sort(track.pieces.begin(), track.pieces.end(),
            [](const Piece& a, const Piece& b) { return a.from < b.from; });
  for (size_t i = 1; i < track.pieces.size(); ++i)
    EXPECT_GE(track.pieces[i].from, track.pieces[i - 1].to - kRounding);
}

// The first rank begins at time 0 and some rank ends the step.
double scale_of(const std::vector<Track>& compute, const std::vector<Track>& all_reduces, double step_s) {
  double low = 1e9, high = 0;
  for (const auto* each : {&compute, &all_reduces})
    for (const Track& track : *each)
      for (const Piece& piece : track.pieces) {
        low = std::min(low, piece.from);
        high = std::max(high, piece.to);
      }
  return (high - low) / step_s;
}

constexpr const char* kExposed = "#e0002d";

TEST(TimelineSvg, CellsCoverTheComputeTimeToScale) {
  for (const int layers : {1, 3}) {
    const Step step = stp_step(4, 11 + layers, layers);
    const std::string svg = timeline_svg(step.program, step.timeline, "stp", "unit times");
    expect_well_formed(svg);
    const auto compute = tracks(svg, "compute"), all_reduces = tracks(svg, "all-reduce");
    ASSERT_EQ(compute.size(), 4U);
    ASSERT_EQ(all_reduces.size(), 4U);
    ASSERT_EQ(svg.find("Cut:"), std::string::npos);
    const double scale = scale_of(compute, all_reduces, step.timeline.step_s);
    for (int rank = 0; rank < 4; ++rank) {
      const double tolerance = kRounding * static_cast<double>(compute[rank].pieces.size());
      EXPECT_NEAR(compute[rank].length(), step.timeline.ranks[rank].compute_s * scale, tolerance);
      expect_no_overlap(compute[rank]);
      expect_no_overlap(all_reduces[rank]);
      double all_reduce = 0;
      for (OpId op = step.program.rank_begin[rank]; op < step.program.rank_begin[rank + 1]; ++op)
        if (step.program.ops[op].kind == OpKind::all_reduce)
          all_reduce += step.timeline.end[op] - step.timeline.start[op];
      EXPECT_NEAR(all_reduces[rank].length(), all_reduce * scale,
                  kRounding * static_cast<double>(all_reduces[rank].pieces.size()));
    }
  }
}

// Where all-reduces alone keep a rank waiting, what is drawn as exposed is its TP bubble.
TEST(TimelineSvg, ExposedAllReducesAreTheTpBubble) {
  const Step step = stp_step(1, 5, 2);
  const std::string svg = timeline_svg(step.program, step.timeline, "stp");
  const auto compute = tracks(svg, "compute"), all_reduces = tracks(svg, "all-reduce");
  const double scale = scale_of(compute, all_reduces, step.timeline.step_s);
  ASSERT_GT(step.timeline.ranks[0].tp_bubble_s, 0);
  EXPECT_NEAR(all_reduces[0].length(kExposed), step.timeline.ranks[0].tp_bubble_s * scale, 0.5);
  EXPECT_GT(all_reduces[0].length(), all_reduces[0].length(kExposed) + 1);
}

// Every action has its tooltip, whether it is braided or not.
TEST(TimelineSvg, EveryActionHasATooltip) {
  const Step step = stp_step(2, 6, 1);
  const std::string svg = timeline_svg(step.program, step.timeline, "stp");
  for (const auto& blocks : step.program.schedule.ranks) {
    for (const Block& block : blocks) {
      for (const Action& action : block.actions()) {
        std::string tooltip = "<title>" + to_string(action);
        if (block.braided())
          tooltip += " of braid " + to_string(block.actions()[0]) + "&amp;" + to_string(block.actions()[1]);
        EXPECT_NE(svg.find(tooltip + ": "), std::string::npos) << tooltip;
      }
    }
  }
}

TEST(TimelineSvg, LargeProgramsAreCutAndSaySo) {
  const Step step = stp_step(16, 512, 1);
  const std::string svg = timeline_svg(step.program, step.timeline, "stp");
  expect_well_formed(svg);
  EXPECT_LT(svg.size(), 2'000'000U);
  EXPECT_NE(svg.find("Cut: only the first and the last "), std::string::npos);
  EXPECT_NE(svg.find(" of 512. "), std::string::npos);
  EXPECT_EQ(tracks(svg, "compute").size(), 16U);
  for (const Track& track : tracks(svg, "compute")) expect_no_overlap(track);
}

TEST(TimelineSvg, ManyRanksAndThinPiecesStayBelowTheLimit) {
  const Step step = stp_step(66, 200, 4);
  const std::string svg = timeline_svg(step.program, step.timeline, "stp");
  expect_well_formed(svg);
  EXPECT_LT(svg.size(), 2'000'000U);
  EXPECT_NE(svg.find("Ranks 0 to 63 of 66 are drawn."), std::string::npos);
  EXPECT_EQ(tracks(svg, "compute").size(), 64U);
}

TEST(TimelineSvg, StandsUpToEdgeCases) {
  // No time passes at all.
  const Step idle =
      step_of(make_schedule(schedule_stp, {.pp = 2, .microbatches = 5}), {1, 1, 1, 1}, json::object());
  expect_well_formed(timeline_svg(idle.program, idle.timeline, "idle"));
  EXPECT_EQ(timeline_svg(idle.program, idle.timeline, "idle").find("nan"), std::string::npos);
  // Chunks without layers, costs without all-reduces, forwards that take no time.
  const Step empty = step_of(make_schedule(schedule_stp, {.pp = 2, .microbatches = 5}), {0, 1, 0, 2},
                             {{"mlp.I", 1e-9}, {"attn.W", 2e6}}, {.optimizer = true});
  const std::string svg = timeline_svg(empty.program, empty.timeline, "empty");
  expect_well_formed(svg);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_TRUE(tracks(svg, "all-reduce").empty());
}

TEST(TimelineSvg, EscapesTextAndIsDeterministic) {
  Step step = stp_step(1, 3, 1);
  step.program.schedule.name = "a<b>&\"c\"\x01";
  const std::string svg = timeline_svg(step.program, step.timeline, "</svg> & \"more\"", "<s>");
  expect_well_formed(svg);
  EXPECT_NE(svg.find("&lt;/svg&gt; &amp; &quot;more&quot;"), std::string::npos);
  EXPECT_EQ(svg.find('\x01'), std::string::npos);
  EXPECT_EQ(svg, timeline_svg(step.program, step.timeline, "</svg> & \"more\"", "<s>"));
}

}  // namespace
}  // namespace stp
