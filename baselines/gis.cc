// GIS, GIS-H and uniform repeating (PipeOffload, 2025): 1F1B-I with each I's W right behind it, whose
// microbatches go through the chunks in groups of g = p, ⌈p/2⌉ and 1. Groups smaller than p hold fewer
// activations and idle longer. Any number of chunks v, any m.
//
// Each rank has a pattern of cycles of F, I and W. The order of a rank is that of its slots, three a cycle.
// Passes of unequal cost need longer cycles on the way down and up the ranks, and then larger groups.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "stp/schedule/generator.h"

namespace stp {
namespace {

// The fewest cycles in which a microbatch goes down all ranks and up: ⌈p/2⌉ with equal costs.
int least_group(int p, const PassCosts& costs) {
  const double cycle = costs.F + costs.I + costs.W, way = p * std::max(costs.F, costs.I);
  constexpr double kTolerance = 1e-9;
  return cycle == 0 ? (p + 1) / 2
                    : std::max((p + 1) / 2, static_cast<int>(std::ceil(way / cycle * (1 - kTolerance))));
}

struct Grouping {
  int p, v, g, least;

  // Cycles of a microbatch in its group, or of a group, from its first chunk to its c-th. The way down the
  // ranks takes `least` cycles, in which a small group lets `groups` − 1 others go first. Chunks meet again
  // every v / gcd(v, groups) chunks, in the cycles of other groups: those behind make way, by one group.
  [[nodiscard]] int to_chunk(int c) const {
    const int groups = (least + g - 1) / g;
    return g * (groups * c + c / (v / std::gcd(v, groups)));
  }
  [[nodiscard]] int start(int microbatch) const { return microbatch / g * g * v + microbatch % g; }

  [[nodiscard]] int forward(int rank, int c, int microbatch) const {
    return 3 * (start(microbatch) + to_chunk(c)) + rank;
  }
  // The last rank's first I follows F of its last chunk at once; each rank above has it a cycle later.
  [[nodiscard]] int input_gradient(int rank, int c, int microbatch) const {
    return forward(rank, v - 1, microbatch) + 1 + 3 * (p - 1 - rank + to_chunk(v - 1 - c));
  }
};

Schedule make_grouped(const GeneratorRequest& request, int g) {
  const int p = request.pp, m = request.microbatches, v = request.chunks;
  const Grouping pattern{p, v, g, least_group(p, request.costs)};
  Schedule schedule{"", Placement::loop(p, v), m, {}};
  for (int rank = 0; rank < p; ++rank) {
    std::vector<std::optional<Action>> by_slot(pattern.input_gradient(rank, 0, m - 1) + 2);
    for (int c = 0; c < v; ++c) {
      const auto chunk = static_cast<int16_t>(c);
      for (int i = 0; i < m; ++i) {
        const int backward = pattern.input_gradient(rank, c, i);
        by_slot[pattern.forward(rank, c, i)] = Action{Pass::F, chunk, i};
        by_slot[backward] = Action{Pass::I, chunk, i};
        by_slot[backward + 1] = Action{Pass::W, chunk, i};
      }
    }
    std::vector<Block>& blocks = schedule.ranks.emplace_back();
    for (const std::optional<Action>& action : by_slot)
      if (action) blocks.emplace_back(*action);
  }
  return schedule;
}

}  // namespace

extern const Generator schedule_gis = {
    .name = "gis",
    .summary = "1F1B-I with adjacent I and W and a short warm-up (PipeOffload, 2025)",
    .chunks = 2,
    .any_chunks = true,
    .cost_aware = true,
    .make = [](const GeneratorRequest& request) { return make_grouped(request, request.pp); }};
extern const Generator schedule_gis_h = {
    .name = "gis-h",
    .summary = "GIS in groups of p/2 microbatches (PipeOffload, 2025)",
    .chunks = 2,
    .any_chunks = true,
    .cost_aware = true,
    .make = [](const GeneratorRequest& request) { return make_grouped(request, (request.pp + 1) / 2); }};
extern const Generator schedule_uniform = {
    .name = "uniform",
    .summary = "GIS microbatch by microbatch (PipeOffload, 2025)",
    .chunks = 2,
    .any_chunks = true,
    .cost_aware = true,
    .make = [](const GeneratorRequest& request) { return make_grouped(request, 1); }};

}  // namespace stp
