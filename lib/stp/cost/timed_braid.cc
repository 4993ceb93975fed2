#include "stp/cost/timed_braid.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <utility>

namespace stp {
namespace {

using Chain = std::span<const SegmentSeconds>;

// Two in-order streams, and the time when each chain may continue, as in a block of a Program (lower.cc).
struct Clock {
  double compute = 0, collectives = 0;
  std::array<double, 2> ready{};

  void gather(int chain, double seconds) {
    if (seconds == 0) return;
    collectives = std::max(collectives, compute) + seconds;
    ready[chain] = collectives;
  }
  // Takes segment `taken` of a chain and, unless it is for later, the all-gather before the next segment.
  void take(int chain, Chain segments, size_t taken, bool gather_next = true) {
    const SegmentSeconds& segment = segments[taken];
    compute = std::max(compute, ready[chain]) + segment.compute;
    ready[chain] = compute;
    if (segment.reduce > 0) ready[chain] = collectives = std::max(collectives, compute) + segment.reduce;
    compute += segment.behind;
    if (gather_next && taken + 1 < segments.size()) gather(chain, segments[taken + 1].gather);
  }
  void wait_for_all() {
    for (double& each : ready) each = std::max(each, std::max(compute, collectives));
  }
  [[nodiscard]] double end() const { return std::max(compute, collectives); }
  [[nodiscard]] bool no_later(const Clock& other) const {
    return compute <= other.compute && collectives <= other.collectives && ready[0] <= other.ready[0] &&
           ready[1] <= other.ready[1];
  }
  [[nodiscard]] bool sooner(const Clock& other) const {
    return std::pair(end(), compute) < std::pair(other.end(), other.compute);
  }
};

Clock begun(Chain a, Chain b) {
  Clock clock;
  if (!a.empty()) clock.gather(0, a[0].gather);
  if (!b.empty()) clock.gather(1, b[0].gather);
  return clock;
}

// One of the ways to a place, where i and j segments have been taken.
struct State {
  Clock clock;
  uint8_t chain = 0;    // it gave the last segment
  uint32_t before = 0;  // index of the previous state, at its place
};

// Keeps the states that no other state dominates, and of these the few that end first so far.
void keep_best(std::vector<State>& states) {
  constexpr size_t kKept = 8;
  std::ranges::sort(states, [](const State& x, const State& y) { return x.clock.sooner(y.clock); });
  std::vector<State> kept;
  for (const State& state : states) {
    if (kept.size() == kKept) break;
    if (std::ranges::none_of(kept, [&](const State& one) { return one.clock.no_later(state.clock); }))
      kept.push_back(state);
  }
  states = std::move(kept);
}

constexpr size_t kMostPlaces = size_t{1} << 17;  // more than any model has; their states take 60 MB

// The chains that give a segment; of two, the one named first comes first.
enum class ChainGroup : uint8_t { a, b, a_and_b, b_and_a };
constexpr bool has_a(ChainGroup group) { return group != ChainGroup::b; }
constexpr bool has_b(ChainGroup group) { return group != ChainGroup::a; }
constexpr int leader(ChainGroup group) {
  return group == ChainGroup::a || group == ChainGroup::a_and_b ? 0 : 1;
}

// Seconds of a group after i and j segments, until all of it ends. The all-gathers before the chains' first
// segments begin with the block.
double group_seconds(Chain a, Chain b, size_t i, size_t j, ChainGroup group) {
  Clock clock = i + j == 0 ? begun(a, b) : Clock{};
  const std::array<Chain, 2> chains{a, b};
  const std::array<size_t, 2> taken{i, j};
  const int first = leader(group), count = has_a(group) && has_b(group) ? 2 : 1;
  for (int k = 0; k < count; ++k) {
    const int chain = k == 0 ? first : 1 - first;
    if (taken[chain] > 0) clock.gather(chain, chains[chain][taken[chain]].gather);
  }
  for (int k = 0; k < count; ++k) {
    const int chain = k == 0 ? first : 1 - first;
    clock.take(chain, chains[chain], taken[chain], false);
  }
  return clock.end();
}

}  // namespace

std::function<SegmentSeconds(const Segment&)> segment_seconds(const CostTable& table,
                                                              const Lowering& lowering) {
  return [table, strategy = lowering.strategy](const Segment& segment) -> SegmentSeconds {
    const Unit unit = segment.unit;
    if (segment.main == Segment::Main::weight_gradients) return {.compute = table.weight_gradients(unit)};
    const UnitPass pass = pass_of(segment);
    const bool in_pieces = strategy.overlaps() && strategy.divides(unit);
    const ExposedCollectives collectives = table.collectives(unit, pass);
    SegmentSeconds seconds{.compute = table.at(unit, pass)};
    if (strategy.divides(unit)) {
      std::vector<CoreExchange> exchanges = strategy.core_exchanges(unit, pass);
      // Nothing of a segment runs beside all-to-alls; a ring's are beside the core.
      std::erase_if(exchanges, [](const CoreExchange& each) { return !rule_of(each.what).all_to_all; });
      double once = 0;
      for (const CoreExchange& each : exchanges) once += table.at(each.what);
      seconds.compute += once;
      for (const CoreExchange& each : exchanges)
        if (each.again && pass == UnitPass::I) seconds.compute += table.at(each.what);
    }
    if (strategy.sequence_parallel && segment.gathers && !in_pieces) seconds.gather = collectives.gather;
    if (segment.all_reduce)
      seconds.reduce = in_pieces                    ? table.last_piece_scatter[static_cast<size_t>(unit)]
                       : strategy.sequence_parallel ? collectives.scatter
                                                    : table.all_reduce_of(unit, pass);
    if (segment.weights == Segment::Weights::both_behind) seconds.behind = table.weight_gradients(unit);
    if (segment.weights == Segment::Weights::early_before_late_behind) {
      seconds.compute += table.at(unit, UnitPass::W_early);
      seconds.behind = table.at(unit, UnitPass::W_late);
    }
    return seconds;
  };
}

BraidEnd end_of(Chain a, Chain b, std::span<const BraidStep> order) {
  const bool paired = std::ranges::any_of(order, &BraidStep::barrier);
  Clock clock = begun(a, b);
  std::array<size_t, 2> taken{};
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i].barrier) {
      clock.wait_for_all();
      for (size_t k = i; k < order.size() && (k == i || !order[k].barrier); ++k) {
        const size_t next = taken[order[k].chain];
        if (next > 0) clock.gather(order[k].chain, (order[k].chain == 0 ? a : b)[next].gather);
      }
    }
    clock.take(order[i].chain, order[i].chain == 0 ? a : b, taken[order[i].chain]++, !paired);
  }
  return {clock.compute, clock.end()};
}

std::vector<BraidStep> timed_braid(Chain a, Chain b) {
  std::vector<BraidStep> evenly = static_braid(static_cast<int>(a.size()), static_cast<int>(b.size()));
  if (a.size() * b.size() > kMostPlaces) return evenly;
  const size_t columns = b.size() + 1;
  std::vector<std::vector<State>> places((a.size() + 1) * columns);
  places[0].push_back({begun(a, b)});
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      std::vector<State>& here = places[i * columns + j];
      keep_best(here);
      for (uint32_t from = 0; from < here.size(); ++from) {
        if (i < a.size()) {
          State next{here[from].clock, 0, from};
          next.clock.take(0, a, i);
          places[(i + 1) * columns + j].push_back(next);
        }
        if (j < b.size()) {
          State next{here[from].clock, 1, from};
          next.clock.take(1, b, j);
          places[i * columns + j + 1].push_back(next);
        }
      }
    }
  std::vector<BraidStep> order(a.size() + b.size());
  size_t i = a.size(), j = b.size();
  uint32_t at = 0;
  for (size_t step = order.size(); step-- > 0;) {
    const State& state = places[i * columns + j][at];
    order[step] = {state.chain};
    at = state.before;
    --(state.chain == 0 ? i : j);
  }
  const BraidEnd found = end_of(a, b, order), other = end_of(a, b, evenly);
  return std::pair(found.all, found.compute) < std::pair(other.all, other.compute) ? order : evenly;
}

std::vector<BraidStep> paired_braid(Chain a, Chain b) {
  if (a.size() * b.size() > kMostPlaces)
    return static_braid(static_cast<int>(a.size()), static_cast<int>(b.size()));
  const size_t columns = b.size() + 1;
  std::vector<double> best((a.size() + 1) * columns, std::numeric_limits<double>::infinity());
  std::vector<ChainGroup> groups(best.size());  // the last group on the way to each place
  best[0] = 0;
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j)
      for (const ChainGroup group :
           {ChainGroup::a_and_b, ChainGroup::b_and_a, ChainGroup::a, ChainGroup::b}) {
        if ((has_a(group) && i == a.size()) || (has_b(group) && j == b.size())) continue;
        const size_t here = i * columns + j, next = here + (has_a(group) ? columns : 0) + has_b(group);
        const double seconds = best[here] + group_seconds(a, b, i, j, group);
        if (seconds >= best[next]) continue;
        best[next] = seconds;
        groups[next] = group;
      }
  std::vector<BraidStep> order;  // backwards
  for (size_t i = a.size(), j = b.size(); i + j > 0;) {
    const ChainGroup group = groups[i * columns + j];
    const auto first = static_cast<uint8_t>(leader(group));
    if (has_a(group) && has_b(group)) order.push_back({static_cast<uint8_t>(1 - first)});
    order.push_back({first, true});
    i -= has_a(group);
    j -= has_b(group);
  }
  std::ranges::reverse(order);
  if (!order.empty()) order.front().barrier = false;  // blocks have none between them
  return order;
}

BraidOrder braid_order(BraidPolicy policy, const CostTable& table, const Lowering& lowering) {
  return [policy, seconds = segment_seconds(table, lowering)](std::span<const Segment> a,
                                                              std::span<const Segment> b) {
    std::array<std::vector<SegmentSeconds>, 2> chains;
    std::ranges::transform(a, std::back_inserter(chains[0]), seconds);
    std::ranges::transform(b, std::back_inserter(chains[1]), seconds);
    return policy == BraidPolicy::timed ? timed_braid(chains[0], chains[1])
                                        : paired_braid(chains[0], chains[1]);
  };
}

}  // namespace stp
