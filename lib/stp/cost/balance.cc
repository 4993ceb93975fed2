#include "stp/cost/balance.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <set>

#include "stp/cost/chain_costs.h"

namespace stp {
namespace {

constexpr double kRounding = 1e-9;  // relative: sums of the same times in another order count as equal
constexpr double kFaster = 1e-4;    // relative: a smaller gain does not count as shorter
constexpr int kReach = 16;          // stages: the longest move of a layer, if layers differ

// Whether the sum of two adjacent virtual stages bounds the pipeline, too.
bool adjacent_stages_count(const Placement& placement) { return placement.name() == "v"; }

// Finds splits with as many layers as bounds of the times of one pipeline allow.
class SplitSearch {
 public:
  SplitSearch(int layers, const SplitCosts& costs, const Placement& placement, int first, const Fits& fits)
      : layers_(layers),
        costs_(costs),
        placement_(placement),
        first_(first),
        fits_(fits),
        most_second_(placement.ranks(), std::vector<int>(layers + 1, kUnknown)) {}

  // Returns a split of at least `layers` layers with a bottleneck of at most `bottleneck` and at most `most`
  // layers per stage; empty if there is none.
  std::vector<int> under(double bottleneck, int most) {
    bottleneck *= 1 + kRounding;
    for (const double fixed : costs_.stage)
      if (fixed > bottleneck) return {};
    // From the last rank back: the most layers of a rank and the ranks after it, by the most layers that its
    // chunks may have.
    std::vector<Table> tables;
    tables.reserve(placement_.ranks());
    for (int rank = placement_.ranks() - 1; rank >= 0; --rank) {
      tables.push_back(table(rank, bottleneck, most, tables.empty() ? nullptr : &tables.back()));
      if (tables.back().most() < 0) return {};
    }
    if (tables.back().most() < layers_) return {};
    std::vector<int> split(placement_.stages(), 0);
    std::array<int, 2> allowed{layers_, layers_};
    for (int rank = 0; rank < placement_.ranks(); ++rank) {
      const Table& here = tables[placement_.ranks() - 1 - rank];
      const std::array<int, 2> chosen = here.at(allowed[0], allowed[1]).chosen;
      for (int chunk = 0; chunk < placement_.chunks(); ++chunk)
        split[placement_.stage(rank, chunk)] = chosen[chunk];
      if (rank + 1 < placement_.ranks()) allowed = next_allowed(rank, chosen, bottleneck);
    }
    return split;
  }

 private:
  static constexpr int kUnknown = -2, kNone = -1;

  struct Entry {
    int most = kNone;  // layers of this rank and the ranks after it
    std::array<int, 2> chosen{};
  };
  // Entries by the largest numbers of layers that the rank's two chunks may have.
  struct Table {
    int first_cap, second_cap;
    std::vector<Entry> entries;

    [[nodiscard]] const Entry& at(int first, int second) const {
      return entries[std::min(first, first_cap) * (second_cap + 1) + std::min(second, second_cap)];
    }
    [[nodiscard]] int most() const { return entries.empty() ? kNone : entries.back().most; }
  };

  // The largest number of layers that, with fixed costs, stays under a bound.
  [[nodiscard]] int room(double bound, double fixed) const {
    if (fixed > bound) return kNone;
    const double left = bound - fixed, of_first = costs_.first * (costs_.layer + costs_.again);
    if (costs_.of_layers(layers_) <= left) return layers_;
    return left < of_first ? static_cast<int>(left / (costs_.layer + costs_.again))
                           : costs_.first + static_cast<int>((left - of_first) / costs_.layer);
  }

  [[nodiscard]] int cap(int rank, int chunk, double bottleneck, int most) const {
    if (chunk >= placement_.chunks()) return 0;
    const int stage = placement_.stage(rank, chunk);
    return stage < first_ ? 0 : std::min(room(bottleneck, costs_.stage[stage]), most);
  }

  // The largest numbers of layers for the next rank's chunks, given this rank's; negative: none fits.
  [[nodiscard]] std::array<int, 2> next_allowed(int rank, const std::array<int, 2>& chosen,
                                                double bottleneck) const {
    std::array<int, 2> allowed{layers_, layers_};
    if (!adjacent_stages_count(placement_)) return allowed;
    for (int chunk = 0; chunk < placement_.chunks(); ++chunk) {
      const double fixed =
          costs_.stage[placement_.stage(rank, chunk)] + costs_.stage[placement_.stage(rank + 1, chunk)];
      allowed[chunk] = room(bottleneck, fixed + costs_.of_layers(chosen[chunk]));
    }
    return allowed;
  }

  Table table(int rank, double bottleneck, int most, const Table* next) {
    Table table{cap(rank, 0, bottleneck, most), cap(rank, 1, bottleneck, most), {}};
    while (table.first_cap >= 0 && most_second_chunk(rank, table.first_cap) < 0) --table.first_cap;
    if (table.first_cap < 0) return table;
    table.second_cap = std::min(table.second_cap, most_second_chunk(rank, 0));
    table.entries.resize(size_t(table.first_cap + 1) * (table.second_cap + 1));
    double fixed = 0;
    for (int chunk = 0; chunk < placement_.chunks(); ++chunk)
      fixed += costs_.stage[placement_.stage(rank, chunk)];
    for (int first = 0; first <= table.first_cap; ++first) {
      const int most_second =
          std::min(room(bottleneck, fixed + costs_.of_layers(first)), most_second_chunk(rank, first));
      for (int second = 0; second <= table.second_cap; ++second) {
        Entry& entry = table.entries[first * (table.second_cap + 1) + second];
        if (second <= most_second) entry = exactly(rank, {first, second}, bottleneck, next);
        // Not more than allowed: what the neighbours in the table have is allowed, too.
        if (second > 0 && table.at(first, second - 1).most > entry.most) entry = table.at(first, second - 1);
        if (first > 0 && table.at(first - 1, second).most > entry.most) entry = table.at(first - 1, second);
      }
    }
    return table;
  }

  [[nodiscard]] Entry exactly(int rank, const std::array<int, 2>& chosen, double bottleneck,
                              const Table* next) const {
    int most = chosen[0] + chosen[1];
    if (next != nullptr) {
      const std::array<int, 2> allowed = next_allowed(rank, chosen, bottleneck);
      if (allowed[0] < 0 || allowed[1] < 0) return {};
      const Entry& behind = next->at(allowed[0], allowed[1]);
      if (behind.most < 0) return {};
      most += behind.most;
    }
    return {most, chosen};
  }

  // The most layers of a rank's second chunk that fit beside `first` layers of its first.
  int most_second_chunk(int rank, int first) {
    int& most = most_second_[rank][first];
    if (most != kUnknown) return most;
    const bool has_second = placement_.chunks() > 1;
    int low = kNone, high = has_second ? layers_ : 0;  // low fits, or is none
    while (low < high) {
      const int middle = low + (high - low + 1) / 2;
      const bool fit = fits_(rank, has_second ? std::vector<int>{first, middle} : std::vector<int>{first});
      (fit ? low : high) = fit ? middle : middle - 1;
    }
    return most = low;
  }

  const int layers_;
  const SplitCosts& costs_;
  const Placement& placement_;
  const int first_;
  const Fits& fits_;
  std::vector<std::vector<int>> most_second_;  // by rank and layers of the first chunk
};

// The smallest of the sorted `candidates` for which `possible` holds; it then holds for all larger ones.
template <typename Value, typename Possible>
std::optional<Value> smallest(std::vector<Value> candidates, Possible possible) {
  std::sort(candidates.begin(), candidates.end());
  // Searches from below in growing steps: large bounds make large tables.
  size_t low = 0, step = 1;  // none before `low` is possible
  while (low + step <= candidates.size() && !possible(candidates[low + step - 1])) {
    low += step;
    step *= 2;
  }
  size_t high = std::min(low + step, candidates.size());
  if (low >= candidates.size()) return std::nullopt;
  --high;
  if (!possible(candidates[high])) return std::nullopt;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (possible(candidates[middle]))
      high = middle;
    else
      low = middle + 1;
  }
  return candidates[high];
}

double of_busiest_rank(const std::vector<double>& of_stages, const Placement& placement) {
  double longest = 0;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    double sum = 0;
    for (int chunk = 0; chunk < placement.chunks(); ++chunk) sum += of_stages[placement.stage(rank, chunk)];
    longest = std::max(longest, sum);
  }
  return longest;
}

// The split of equal layers.
std::optional<std::vector<int>> uniform_partition(int layers, const SplitCosts& costs,
                                                  const Placement& placement, int first, const Fits& fits) {
  // The terms of a time bound: fixed costs and a number of layers, some of them run again.
  const auto times = [&](const std::set<double>& fixed) {
    std::vector<double> all;
    for (const double each : fixed)
      for (int count = 0; count <= layers; ++count)
        for (int again = 0; again <= std::min(count, 2 * costs.first); ++again)  // of one or two chunks
          all.push_back(each + count * costs.layer + again * costs.again);
    return all;
  };
  std::set<double> together;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    double sum = 0;
    for (int chunk = 0; chunk < placement.chunks(); ++chunk) sum += costs.stage[placement.stage(rank, chunk)];
    together.insert(sum);
  }
  for (int stage = 1; stage < placement.stages(); ++stage)
    together.insert(costs.stage[stage - 1] + costs.stage[stage]);

  SplitSearch search(layers, costs, placement, first, fits);
  const auto bottleneck =
      smallest(times(together), [&](double bound) { return !search.under(bound, layers).empty(); });
  if (!bottleneck) return std::nullopt;
  std::vector<int> counts(layers + 1);
  std::iota(counts.begin(), counts.end(), 0);
  const auto most = smallest(counts, [&](int bound) { return !search.under(*bottleneck, bound).empty(); });
  std::vector<int> split = search.under(*bottleneck, *most);
  // The split may have room for more layers than the model has.
  for (int surplus = std::accumulate(split.begin(), split.end(), -layers); surplus > 0; --surplus) {
    const std::vector<double> seconds = costs.of_stages(split);
    int fullest = -1;
    for (int stage = 0; stage < placement.stages(); ++stage)
      if (split[stage] > 0 && (fullest < 0 || seconds[stage] >= seconds[fullest])) fullest = stage;
    --split[fullest];
  }
  return split;
}

// The quality of a split; less is better.
struct Quality {
  double bottleneck;
  double unevenness = 0;  // the sum of the stages' squared times

  Quality(const SplitCosts& costs, const std::vector<int>& split, const Placement& placement)
      : bottleneck(bottleneck_seconds(costs, split, placement)) {
    for (const double seconds : costs.of_stages(split)) unevenness += seconds * seconds;
  }
  [[nodiscard]] bool operator<(const Quality& other) const {
    if (bottleneck < other.bottleneck * (1 - kRounding)) return true;
    return bottleneck <= other.bottleneck * (1 + kRounding) &&
           unevenness < other.unevenness * (1 - kRounding);
  }
};

bool fits_rank_of(int stage, const std::vector<int>& split, const Placement& placement, const Fits& fits) {
  const int rank = placement.rank_of(stage);
  std::vector<int> of_chunks;
  for (int chunk = 0; chunk < placement.chunks(); ++chunk)
    of_chunks.push_back(split[placement.stage(rank, chunk)]);
  return fits(rank, of_chunks);
}

// Moves one layer from stage to stage, with all stages between them shifted, as long as that helps.
void improve(std::vector<int>& split, const SplitCosts& costs, const Placement& placement, int first,
             int most, const Fits& fits) {
  const int reach = costs.layer_factors.empty() ? placement.stages() : kReach;
  Quality best(costs, split, placement);
  std::vector<double> seconds = costs.of_stages(split);
  for (bool moved = true; moved;) {
    moved = false;
    for (int from = first; from < placement.stages(); ++from)
      for (int to = std::max(first, from - reach); to < std::min(placement.stages(), from + reach + 1);
           ++to) {
        if (from == to || split[from] == 0 || split[to] >= most) continue;
        // Equal layers have their bottleneck already.
        if (costs.layer_factors.empty() && seconds[to] + costs.layer >= seconds[from]) continue;
        --split[from];
        ++split[to];
        const Quality now(costs, split, placement);
        if (now < best && fits_rank_of(to, split, placement, fits)) {
          best = now;
          seconds = costs.of_stages(split);
          moved = true;
        } else {
          ++split[from];
          --split[to];
        }
      }
  }
}

// The stages that may take a layer from `stage`: its neighbours, and those of its rank.
std::set<int> nearby(int stage, const Placement& placement, int first) {
  std::set<int> stages{stage - 1, stage + 1};
  for (int chunk = 0; chunk < placement.chunks(); ++chunk)
    stages.insert(placement.stage(placement.rank_of(stage), chunk));
  stages.erase(stage);
  std::erase_if(stages, [&](int each) { return each < first || each >= placement.stages(); });
  return stages;
}

}  // namespace

SplitCosts split_costs(const CostTable& table, const Lowering& lowering, int stages) {
  const Strategy& strategy = lowering.strategy;
  const UnitChains units = unit_chains(table, lowering);
  const auto seconds = [&](const PassChains& of) {
    const auto sum = [&](const ChainCost& one, const ChainCost& other = {}) {
      return one.compute + other.compute + (strategy.in_ring() ? 0 : one.cp + other.cp);
    };
    // GEMMs beside a collective have fewer SMs, so that B may take longer than I and W.
    return strategy.parts_of_microbatch() * (sum(of.F) + std::min(sum(of.I, of.W), sum(of.B_I, of.B_W)));
  };
  const int again = strategy.recompute.first;
  SplitCosts costs{.layer = seconds(again > 0 ? units.other : units.layer),
                   .stage = std::vector<double>(stages),
                   .layer_factors = {},
                   .again = 0,
                   .first = again};
  costs.again = seconds(units.layer) - costs.layer;
  costs.stage.front() += seconds(units.first);
  costs.stage.back() += seconds(units.head);
  return costs;
}

std::vector<double> SplitCosts::of_stages(const std::vector<int>& layers) const {
  std::vector<double> seconds = stage;
  auto factor = layer_factors.begin();
  for (size_t each = 0; each < seconds.size(); ++each) {
    if (layer_factors.empty()) {
      seconds[each] += of_layers(layers[each]);
    } else {
      seconds[each] += layer * std::accumulate(factor, factor + layers[each], 0.0) +
                       again * std::accumulate(factor, factor + std::min(first, layers[each]), 0.0);
      factor += layers[each];
    }
  }
  return seconds;
}

double bottleneck_seconds(const SplitCosts& costs, const std::vector<int>& layers,
                          const Placement& placement) {
  const std::vector<double> seconds = costs.of_stages(layers);
  double longest = of_busiest_rank(seconds, placement);
  if (!adjacent_stages_count(placement)) return longest;
  for (int stage = 1; stage < placement.stages(); ++stage)
    longest = std::max(longest, seconds[stage - 1] + seconds[stage]);
  return longest;
}

std::optional<std::vector<int>> balanced_partition(int layers, const SplitCosts& costs,
                                                   const Placement& placement, int first, const Fits& fits) {
  SplitCosts alike = costs;
  const auto& factors = costs.layer_factors;
  if (!factors.empty())
    for (double* each : {&alike.layer, &alike.again})
      *each *= std::accumulate(factors.begin(), factors.end(), 0.0) / layers;
  alike.layer_factors.clear();
  auto split = uniform_partition(layers, alike, placement, first, fits);
  if (!split) return split;
  improve(*split, alike, placement, first, *std::max_element(split->begin(), split->end()), fits);
  if (!factors.empty()) improve(*split, costs, placement, first, layers, fits);
  return split;
}

std::vector<int> fastest_nearby(std::vector<int> split, const std::vector<int>& other,
                                const SplitCosts& costs, const Placement& placement, int first,
                                const Fits& fits, double microbatches, const StepSeconds& step_seconds,
                                int most) {
  if (most <= 0) return split;
  double best = step_seconds(split), of_other = std::numeric_limits<double>::infinity();
  std::set<std::vector<int>> simulated{split};  // one that was not faster then is not faster now
  bool other_fits = true;
  for (int stage = 0; stage < placement.stages(); ++stage)
    other_fits = other_fits && fits_rank_of(stage, other, placement, fits);
  if (other_fits && simulated.insert(other).second) of_other = step_seconds(other);
  for (bool moved = true; moved;) {
    moved = false;
    for (int from = first; from < placement.stages(); ++from)
      for (const int to : nearby(from, placement, first)) {
        if (split[from] == 0) break;
        std::vector<int> tried = split;
        --tried[from];
        ++tried[to];
        if (microbatches * of_busiest_rank(costs.of_stages(tried), placement) >= best) continue;
        if (!fits_rank_of(to, tried, placement, fits)) continue;
        if (--most <= 0) return of_other < best ? other : split;
        if (!simulated.insert(tried).second) continue;
        const double seconds = step_seconds(tried);
        if (seconds >= best * (1 - kFaster)) continue;
        best = seconds;
        split = std::move(tried);
        moved = true;
      }
    if (moved || of_other >= best * (1 - kFaster)) continue;
    best = of_other;
    split = other;
    moved = true;
  }
  return split;
}

}  // namespace stp
