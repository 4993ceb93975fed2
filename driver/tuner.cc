#include "tuner.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <queue>
#include <set>

#include "all_cores.h"
#include "baselines/registry.h"
#include "choices.h"
#include "experiment_memory.h"
#include "interrupt.h"
#include "order_bound.h"
#include "outlines.h"
#include "progress.h"
#include "run_simulated.h"
#include "table.h"

namespace stp {
namespace {

constexpr size_t kBest = 10;
constexpr size_t kBatch = 64;  // pieces between two looks at the best: fixed, so that threads change nothing
constexpr size_t kKeptBlocks = 10'000'000;  // of schedules, 20 bytes each

// A family: all savers of a plan's variant, with a bound of its compute alone; once it is placed, with its
// layers and a bound for every order. Or one of its members, which fits and has a bound of its own order.
struct Piece {
  double bound_s = 0;
  size_t plan = 0, variant = 0;
  int saver = -1;           // -1: a family
  std::vector<int> layers;  // by virtual stage of one pipeline; empty: not placed
  double margin_gb = 0;     // of a family: without activations
  Fit fit = Fit::no;
  size_t id = 0;

  bool operator>(const Piece& other) const {
    return std::tie(bound_s, id, saver) > std::tie(other.bound_s, other.id, other.saver);
  }
};

// What a piece became.
struct PieceResult {
  std::vector<Piece> members;  // of a family: those to be simulated
  std::vector<Piece> unfit;
  size_t needless = 0, same = 0;
  Refused refused;
  std::optional<Tuned> tuned;
  bool reused = false;
};

constexpr const char* kPlain = "1f1b";  // on one pipeline rank, all orders without braids are as good

Tuned tuned_of(const Experiment& experiment, const Schedule& schedule, const Piece& piece) {
  return {.id = piece.id,
          .experiment = experiment,
          .bound_s = piece.bound_s,
          .fit = piece.fit,
          .complicated = complications(experiment, schedule, piece.layers)};
}

class Search {
 public:
  Search(const TuneSpace& space, double band, double peak_error, bool exhaustive, FinishedRows& rows)
      : space_(space), band_(band), peak_error_(peak_error), exhaustive_(exhaustive), rows_(rows) {
    result_.counts.configurations = space.configurations;
    result_.counts.refused = space.refused;
  }

  TuneResult run() {
    add_families();
    ProgressBar progress("judged", space_.configurations);
    progress.step(judged());
    for (std::vector<Piece> batch; !(batch = next_batch()).empty();) {
      std::vector<PieceResult> made(batch.size());
      on_all_cores(batch.size(), [&](size_t each) { made[each] = work_on(batch[each]); });
      for (const PieceResult& each : made)
        if (each.tuned && !each.reused)
          rows_.keep(each.tuned->experiment, each.tuned->choice(), exhaustive_, each.tuned->outcome);
      check_interrupted();
      const size_t before = judged();
      for (PieceResult& each : made) take(std::move(each));
      progress.step(judged() - before);
    }
    if (tuned_.empty() && !result_.nearest) look_for_nearest();
    choose();
    return std::move(result_);
  }

 private:
  [[nodiscard]] size_t judged() const {
    const TuneCounts& counts = result_.counts;
    size_t all = counts.simulated + counts.reused + counts.unfit + counts.needless + counts.same;
    for (const auto& [reason, count] : counts.refused.by_reason) all += count;
    return all;
  }
  // The step that a configuration must not be above to matter.
  [[nodiscard]] double limit() const {
    if (exhaustive_ || steps_.size() < kBest) return 1e300;
    return *std::next(steps_.begin(), kBest - 1) * (1 + band_);
  }
  // Of the lowest bounds; above the limit those that may be the fastest that surely fits.
  std::vector<Piece> next_batch() {
    std::vector<Piece> batch;
    const double most = limit();
    const bool above = !queue_.empty() && queue_.top().bound_s > most;  // as all others
    for (; batch.size() < kBatch && !queue_.empty() && (above || queue_.top().bound_s <= most); queue_.pop())
      if (const Piece& piece = queue_.top(); !above || (piece.bound_s < sure_s_ && may_be_sure(piece)))
        batch.push_back(piece);
      else
        result_.counts.bounded += piece.saver < 0 ? space_.savers.size() : 1;
    return batch;
  }
  [[nodiscard]] bool may_be_sure(const Piece& piece) const {
    const HardwareProfile& profile = space_.plans[piece.plan].hardware->profile;
    return (piece.saver < 0 ? fit_of(profile, piece.margin_gb, peak_error_) : piece.fit) == Fit::yes;
  }

  void add_families();
  PieceResult work_on(const Piece& piece) {
    return piece.saver >= 0 ? simulate_piece(piece) : piece.layers.empty() ? place(piece) : expand(piece);
  }
  struct Placed {
    std::vector<int> layers;  // by virtual stage of one pipeline
    double bound_s;           // of every order
  };
  Placed placed_as(const Piece& family, const Experiment& experiment, const Schedule& schedule);
  PieceResult place(Piece family);
  bool repeats(const Piece& family, const Experiment& experiment);
  PieceResult expand(const Piece& family);
  PieceResult simulate_piece(const Piece& piece);
  void take(PieceResult made);
  void choose();
  void look_for_nearest();
  // Its order; throws InputError if the generator refuses.
  std::shared_ptr<const Schedule> schedule_of(const Experiment& experiment);
  // An order of few microbatches on the same placement.
  std::shared_ptr<const Schedule> short_schedule_of(const Experiment& experiment);
  std::shared_ptr<const Schedule> kept(const std::string& key, const std::function<Schedule()>& make);
  [[nodiscard]] Experiment experiment_of(const Piece& piece) const {
    const Experiment& plan = space_.plans[piece.plan];
    Experiment one = space_.experiment(plan, variants_.at(plan.strategy.pp)[piece.variant],
                                       space_.savers[std::max(0, piece.saver)]);
    one.layers_per_chunk = piece.layers;
    if (piece.saver >= 0 && find_generator(one.schedules.front().name).cost_aware && !one.schedule_costs)
      one.schedule_costs = rounded_costs(one, piece);
    return one;
  }
  // For generators: in tenths of a forward, so that alike configurations share an order, whose search is
  // long.
  [[nodiscard]] PassCosts rounded_costs(const Experiment& experiment, const Piece& piece) const {
    const Recompute& recompute = experiment.strategy.recompute;
    const auto first_alike = std::ranges::find(space_.savers, recompute, &Saver::recompute);
    return remembered(costs_, {piece.plan, experiment.chunks, first_alike - space_.savers.begin()}, [&] {
      Experiment even = experiment;  // whatever layers the first of those that share these costs has
      even.layers_per_chunk.clear();
      const PassCosts costs = costs_for_generator(even, even.chunks);
      const auto rounded = [&](double cost) { return std::round(10 * cost / costs.F) / 10; };
      return PassCosts{1, rounded(costs.I), rounded(costs.W), rounded(costs.p2p)};
    });
  }
  // The value of `key`; make() makes it if there is none.
  template <typename Map, typename Make>
  typename Map::mapped_type remembered(Map& map, const typename Map::key_type& key, const Make& make) const {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = map.find(key); found != map.end()) return found->second;
    }
    auto made = make();
    const std::lock_guard lock(mutex_);
    return map[key] = std::move(made);
  }

  const TuneSpace& space_;
  double band_, peak_error_;
  bool exhaustive_;
  FinishedRows& rows_;
  std::map<int, std::vector<Variant>> variants_;  // by pp
  bool has_plain_ = false, has_even_ = false;
  std::priority_queue<Piece, std::vector<Piece>, std::greater<>> queue_;
  std::multiset<double> steps_;  // of what fits
  double sure_s_ = 1e300;        // the fastest of what surely fits
  std::vector<Tuned> tuned_;
  TuneResult result_;
  std::optional<Piece> nearest_plan_;
  mutable std::mutex mutex_;                                                    // of what follows
  mutable std::map<std::tuple<size_t, int, std::ptrdiff_t>, PassCosts> costs_;  // rounded_costs()
  std::map<std::string, std::shared_ptr<const Schedule>> schedules_;
  size_t kept_blocks_ = 0;
  // By plan, placement and whether the vocabulary is shared.
  std::map<std::tuple<size_t, std::string, int, LayerSplit, Vocabulary>, Placed> placed_;
};

void Search::add_families() {
  std::vector<std::pair<double, double>> ideals(space_.plans.size());
  on_all_cores(ideals.size(), [&](size_t plan) {
    ideals[plan] = {even_margin_gb(space_.plans[plan]), even_seconds(space_.plans[plan])};
  });
  check_interrupted();
  size_t id = 0;
  for (size_t plan = 0; plan < ideals.size(); ++plan) {
    const Experiment& experiment = space_.plans[plan];
    const int pp = experiment.strategy.pp;
    if (!variants_.contains(pp)) variants_[pp] = space_.variants(pp);
    for (const Variant& variant : variants_[pp]) {
      has_plain_ = has_plain_ || name_of(variant.choice) == kPlain;
      has_even_ = has_even_ || variant.split == LayerSplit::even;
    }
    const auto [margin, seconds] = ideals[plan];
    const bool fits = exhaustive_ || fit_of(experiment.hardware->profile, margin) != Fit::no;
    if (!fits && (!nearest_plan_ || nearest_plan_->margin_gb < margin))
      nearest_plan_ = Piece{.plan = plan, .layers = {}, .margin_gb = margin, .id = id};
    for (size_t variant = 0; variant < variants_[pp].size(); ++variant, id += space_.savers.size()) {
      if (fits)
        queue_.push({.bound_s = seconds,
                     .plan = plan,
                     .variant = variant,
                     .layers = {},
                     .margin_gb = margin,
                     .id = id});
      else
        result_.counts.unfit += space_.savers.size();
    }
  }
}

std::shared_ptr<const Schedule> Search::kept(const std::string& key, const std::function<Schedule()>& make) {
  return remembered(schedules_, key, [&] {
    auto made = std::make_shared<const Schedule>(make());
    const std::lock_guard lock(mutex_);
    for (const auto& blocks : made->ranks) kept_blocks_ += blocks.size();
    if (kept_blocks_ > kKeptBlocks) {
      schedules_.clear();
      kept_blocks_ = 0;
    }
    return made;
  });
}

std::shared_ptr<const Schedule> Search::schedule_of(const Experiment& experiment) {
  return kept(key_of(experiment, experiment.microbatches),
              [&] { return schedule_for(experiment.schedules.front(), experiment, ""); });
}

std::shared_ptr<const Schedule> Search::short_schedule_of(const Experiment& experiment) {
  const int pp = experiment.strategy.pp, few = 2 * pp;  // every generator takes so many
  return kept("short " + key_of(experiment, few), [&] {
    return make_schedule(find_generator(experiment.schedules.front().name),
                         {.pp = pp, .microbatches = few, .chunks = experiment.chunks});
  });
}

// Schedules on one placement share its layers and its bound.
Search::Placed Search::placed_as(const Piece& family, const Experiment& experiment,
                                 const Schedule& schedule) {
  const auto make = [&] {
    std::vector<int> layers = layers_for(experiment, schedule, false);
    const Program program = outline(schedule, layers, lowering_for(experiment, schedule, layers));
    const double bound_s = step_bound_of(experiment, program, bounding_table(experiment, program));
    layers.resize(schedule.placement.depth());
    return Placed{layers, bound_s};
  };
  return remembered(
      placed_,
      {family.plan, schedule.placement.name(), experiment.chunks, experiment.split, vocabulary_of(schedule)},
      make);
}

// Whether an earlier variant with braids has the same order on one pipeline rank.
bool Search::repeats(const Piece& family, const Experiment& experiment) {
  const auto own = schedule_of(experiment);
  Piece earlier = family;
  const auto same = [&](const Experiment& other) {
    if (other.split != experiment.split || other.chunks != experiment.chunks) return false;
    try {
      return has_braids(*short_schedule_of(other)) && schedule_of(other)->ranks == own->ranks;
    } catch (const InputError&) {
      return false;  // it is refused
    }
  };
  while (earlier.variant-- > 0)
    if (same(experiment_of(earlier))) return true;
  return false;
}

// Whatever its order, and without savers, which make no step shorter.
PieceResult Search::place(Piece family) {
  PieceResult made;
  try {
    Experiment experiment = experiment_of(family);
    experiment.strategy.recompute = {};
    experiment.strategy.offload = 0;
    experiment.braid = BraidPolicy::static_merge;
    const auto schedule = short_schedule_of(experiment);
    const Placed placed = placed_as(family, experiment, *schedule);
    family.layers = placed.layers;
    const bool one_rank = experiment.strategy.pp == 1, braids = has_braids(*schedule);
    if ((experiment.split == LayerSplit::balanced && has_even_ && is_even(experiment, family.layers)) ||
        (one_rank && !braids && has_plain_ && name_of(experiment.schedules.front()) != kPlain) ||
        (one_rank && braids && repeats(family, experiment))) {
      made.same = space_.savers.size();
      return made;
    }
    family.bound_s = std::max(family.bound_s, placed.bound_s);
    made.members.push_back(std::move(family));
  } catch (const InputError& error) {
    made.refused.add(error, space_.savers.size());
  }
  return made;
}

PieceResult Search::expand(const Piece& family) {
  PieceResult made;
  std::vector<Saver> enough;  // those that fit
  Outlines outlines;
  std::vector<std::pair<Recompute, double>> bounds;  // copies change none
  std::pair<Recompute, double> less{{}, -1e300};     // of the saver before: its margin
  for (int saver = 0; saver < static_cast<int>(space_.savers.size()); ++saver) {
    const Saver& one = space_.savers[saver];
    if (!exhaustive_ && std::ranges::any_of(enough, [&](const Saver& other) { return one.covers(other); })) {
      ++made.needless;
      continue;
    }
    try {
      Piece member = family;
      member.saver = saver;
      member.id += saver;
      Experiment experiment = experiment_of(member);
      const auto schedule = schedule_of(experiment);
      Experiment plain = experiment;
      plain.braid = BraidPolicy::static_merge;
      const std::vector<int> layers = layers_for(experiment, *schedule, false);
      check_recompute(experiment, layers);
      const Lowering lowering = lowering_for(plain, *schedule, layers);
      const Program& program = outlines.of(schedule, layers, lowering);
      member.margin_gb = margin_gb(experiment, program);
      member.fit = fit_of(experiment.hardware->profile, member.margin_gb, peak_error_);
      if (member.fit == Fit::yes) enough.push_back(one);
      if (member.fit == Fit::no && !exhaustive_) {
        made.unfit.push_back(std::move(member));
        continue;
      }
      const bool saves_nothing =
          one.offload > 0 && less.first == one.recompute && member.margin_gb <= less.second;
      less = {one.recompute, member.margin_gb};
      if (saves_nothing && !exhaustive_) {
        ++made.needless;
        continue;
      }
      auto bound = std::ranges::find(bounds, one.recompute, &std::pair<Recompute, double>::first);
      if (bound == bounds.end()) {
        const CostTable table = bounding_table(experiment, program);
        bound = bounds.insert(bound,
                              {one.recompute, std::max({family.bound_s, step_bound_of(plain, program, table),
                                                        OrderBound(lowering, table)(*schedule, layers)})});
      }
      member.bound_s = bound->second;
      made.members.push_back(std::move(member));
    } catch (const InputError& error) {
      made.refused.add(error, 1);
    }
  }
  return made;
}

PieceResult Search::simulate_piece(const Piece& piece) {
  PieceResult made;
  const Experiment experiment = experiment_of(piece);
  try {
    const auto schedule = schedule_of(experiment);
    Tuned tuned = tuned_of(experiment, *schedule, piece);
    StepOutcome& outcome = tuned.outcome;
    const nlohmann::json row = rows_.find(tuned.experiment, tuned.choice(), exhaustive_);
    made.reused = !row.is_null();
    if (made.reused) {
      outcome = row.get<StepOutcome>();
    } else {
      const std::vector<int> layers = layers_for(experiment, *schedule, false);
      const Result result =
          exhaustive_ ? run_simulated(lower(*schedule, layers, lowering_for(experiment, *schedule, layers)),
                                      experiment)
                            .result
                      : simulated_result(*schedule, layers, experiment);
      const RankResult& busiest = result.busiest_rank();
      outcome = {result.step_time_s(),
                 *result.tokens_per_s_per_gpu(),
                 result.mfu.value_or(0),
                 *result.peak_total_gb(),
                 *result.memory_margin_gb,
                 busiest.tp_bubble_s / result.step_time_s(),
                 std::max(0.0, busiest.pp_bubble_s / result.step_time_s()),  // of times, rounded
                 result.lower_bound_s.value_or(0)};
    }
    tuned.fit = fit_of(experiment.hardware->profile, outcome.margin_gb, peak_error_);
    made.tuned = std::move(tuned);
  } catch (const InputError& error) {
    made.refused.add(error, 1);
  }
  return made;
}

void Search::take(PieceResult made) {
  TuneCounts& counts = result_.counts;
  counts.needless += made.needless;
  counts.same += made.same;
  counts.refused.add(made.refused);
  for (Piece& member : made.members) queue_.push(std::move(member));
  const auto lacks_least = [&](double margin_gb) {
    ++counts.unfit;
    return !result_.nearest || result_.nearest->outcome.margin_gb < margin_gb;
  };
  for (const Piece& piece : made.unfit) {
    if (!lacks_least(piece.margin_gb)) continue;
    const Experiment experiment = experiment_of(piece);
    result_.nearest = tuned_of(experiment, *schedule_of(experiment), piece);
    result_.nearest->outcome.margin_gb = piece.margin_gb;
  }
  if (!made.tuned) return;
  if (made.tuned->fit == Fit::no) {  // simulated all the same by an exhaustive search
    if (lacks_least(made.tuned->outcome.margin_gb)) result_.nearest = *std::move(made.tuned);
    return;
  }
  ++(made.reused ? counts.reused : counts.simulated);
  steps_.insert(made.tuned->outcome.step_s);
  if (made.tuned->fit == Fit::yes) sure_s_ = std::min(sure_s_, made.tuned->outcome.step_s);
  result_.points.push_back(made.tuned->outcome);
  result_.names.push_back(made.tuned->name());
  tuned_.push_back(*std::move(made.tuned));
}

void Search::look_for_nearest() {
  if (!nearest_plan_) return;
  for (size_t variant = 0; variant < variants_.at(space_.plans[nearest_plan_->plan].strategy.pp).size();
       ++variant) {
    Piece family = *nearest_plan_;
    family.variant = variant;
    PieceResult made = place(family);
    if (!made.members.empty()) made = expand(made.members.front());
    made.refused.by_reason.clear();  // of which it is one already
    made.members.clear();
    const size_t unfit = result_.counts.unfit;
    take(std::move(made));
    result_.counts.unfit = unfit;
  }
}

void Search::choose() {
  if (tuned_.empty()) return;
  const double equal = *steps_.begin() * (1 + band_);
  const auto order = [&](const Tuned& one) {
    const StepOutcome& outcome = one.outcome;
    const bool is_equal = outcome.step_s <= equal;
    return std::tuple{!is_equal,
                      is_equal && one.fit != Fit::yes,
                      is_equal ? one.complicated.size() : 0,
                      is_equal ? std::llround(outcome.peak_gb) : 0,
                      outcome.step_s,
                      one.id};
  };
  std::ranges::sort(tuned_, {}, order);
  result_.equals =
      std::ranges::count_if(tuned_, [&](const Tuned& one) { return one.outcome.step_s <= equal; });
  auto end = tuned_.begin() + static_cast<std::ptrdiff_t>(std::min(tuned_.size(), kBest));
  const auto keep = [&](double step_s, bool sure) {  // the first with this step
    const auto found = std::ranges::find_if(tuned_, [&](const Tuned& one) {
      return one.outcome.step_s == step_s && (one.fit == Fit::yes || !sure);
    });
    if (found >= end && found != tuned_.end()) std::iter_swap(end++, found);
  };
  keep(*steps_.begin(), false);  // with which the first is compared
  if (tuned_.front().fit != Fit::yes) keep(sure_s_, true);
  tuned_.erase(end, tuned_.end());
  result_.best = std::move(tuned_);
}

}  // namespace

TuneResult tune(const TuneSpace& space, double band, double peak_error, bool exhaustive, FinishedRows& rows) {
  return Search(space, band, peak_error, exhaustive, rows).run();
}

}  // namespace stp
