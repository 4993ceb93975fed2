#include "stp/cost/step_bound.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "stp/cost/chain_costs.h"

namespace stp {
namespace {

// A pass of all microbatches, or its part of a stream.
struct Task {
  double head, tail;
  double work;  // of all microbatches
};

// Seconds that sets with head ρ ≤ `head` and tail θ ≤ `tail`, which hold all forwards of a rank and some
// backward, cannot use before the rank's first backward.
struct Ramp {
  double head = 0, tail = -1, loss = 0;
};

// The largest bound of a set of tasks. `end` follows the last op of each of them.
double best_set(std::vector<Task>& tasks, double end, const Ramp& ramp = {}) {
  std::ranges::sort(tasks, std::greater<>(), &Task::tail);
  double best = 0;
  for (const Task& first : tasks) {
    double sum = 0;
    for (const Task& task : tasks) {
      if (task.head < first.head) continue;
      sum += task.work;
      const double lost = first.head <= ramp.head && task.tail <= ramp.tail ? ramp.loss : 0;
      best = std::max(best, first.head + sum + lost + std::max(task.tail, end));
    }
  }
  return best;
}

constexpr int kAdapter = -1;  // in place of a rank: all ranks on other nodes

class Bounds {
 public:
  Bounds(const Placement& placement, int microbatches, const std::vector<int>& layers_per_stage,
         const Lowering& lowering, const CostTable& table, const Contention& contention,
         bool shares_vocabulary)
      : placement_(placement),
        layers_(layers_per_stage),
        lowering_(lowering),
        table_(table),
        shares_vocabulary_(shares_vocabulary),
        chains_(chains(table)),
        of_compute_{1, std::min(1.0, (1 - contention.compute) / contention.all_reduce)},
        of_collectives_{std::min(1.0, (1 - contention.all_reduce) / contention.compute), 1},
        slowest_collective_(1 / contention.all_reduce) {
    const auto& factors = table.microbatch_factors;
    count_ = microbatches * lowering.strategy.parts_of_microbatch();
    if (!factors.empty()) {
      count_ *= std::accumulate(factors.begin(), factors.end(), 0.0) / static_cast<double>(factors.size());
      const auto [least, most] = std::ranges::minmax(factors);
      least_ = least, most_ = most;
    }
    set_heads();
    set_tails();
  }

  double bound(int activation_limit) {
    double result = 0;
    const auto raise = [&](double seconds) { result = std::max(result, seconds); };
    if (!lowering_.strategy.post_validation) raise(I_head_.back() + backward_tail_.back());
    for (int rank = 0; rank < placement_.ranks(); ++rank) {
      for (const Weight& weight : {of_compute_, of_collectives_}) {
        if (lowering_.strategy.post_validation) {
          raise(repeated_work(rank, weight));
          continue;
        }
        raise(work(rank, weight));
        if (waits_for_sends()) raise(work_and_sends(rank, weight));
      }
      if (lowering_.strategy.post_validation) continue;
      raise(work(rank, of_compute_, ramp(rank)));
      raise(stream(rank, &ChainCost::tp));
      raise(stream(rank, &ChainCost::cp));
      for (const int peer : peers(rank)) raise(link(rank, peer));
      if (activation_limit > 0) raise(memory(rank, activation_limit));
    }
    return result;
  }

 private:
  // Effective work of a second of compute, and of contending collectives.
  struct Weight {
    double compute, collectives;

    [[nodiscard]] double of(const ChainCost& chain) const {
      return compute * chain.compute + collectives * chain.contending;
    }
  };

  [[nodiscard]] std::vector<PassChains> chains(const CostTable& table) const {
    UnitChains units = unit_chains(table, lowering_);
    if (shares_vocabulary_) units.first = units.head = {};
    std::vector<PassChains> all = stage_chains(units, placement_, layers_, table.layer_factors);
    for (int rank = 0; rank < placement_.ranks() && !table.by_rank.empty(); ++rank) {
      CostTable own = table;
      for (const auto& [pass, seconds] : table.by_rank) own.at(pass.first, pass.second) = seconds[rank];
      own.by_rank.clear();
      const std::vector<PassChains> of_rank = chains(own);
      for (int chunk = 0; chunk < placement_.chunks(); ++chunk)
        all[placement_.stage(rank, chunk)] = of_rank[placement_.stage(rank, chunk)];
    }
    return all;
  }
  // All passes of a shared vocabulary of one microbatch.
  [[nodiscard]] ChainCost vocabulary(int rank) const {
    ChainCost all;
    for (const Unit unit : {Unit::head, Unit::embedding})
      for (const UnitPass pass : kUnitPasses) all.compute += table_.on_rank(rank, unit, pass);
    return all;
  }

  [[nodiscard]] int stages() const { return placement_.stages(); }
  [[nodiscard]] bool has_ops(int stage) const { return chains_[stage].F.serial() > 0; }
  [[nodiscard]] bool has_weights(int stage) const {
    return layers_[stage] > 0 || placement_.is_first(stage) || placement_.is_last(stage);
  }

  // Seconds of the transfer from a stage to another.
  [[nodiscard]] double hop(int from, int to) const {
    const int sender = placement_.rank_of(from), receiver = placement_.rank_of(to);
    if (sender == receiver) return 0;
    return table_.near(sender, receiver)
               ? table_.transfer_within_node
               : std::min(table_.transfer_between_nodes, table_.transfer_beside_another);
  }

  // The shortest op on all weights of the chunk, or of one bucket.
  [[nodiscard]] double least_of_buckets(const std::vector<std::vector<double>>& by_stage, double per_layer,
                                        int stage) const {
    if (!lowering_.data_parallel || !has_weights(stage)) return 0;
    return by_stage.empty() ? per_layer * layers_[stage] : *std::ranges::min_element(by_stage[stage]);
  }
  [[nodiscard]] double gather(int stage) const {
    if (!lowering_.strategy.zero || !has_ops(stage)) return 0;
    return least_of_buckets(table_.weight_gather, table_.gradient_reduce_per_layer / 2, stage);
  }
  [[nodiscard]] double reduction(int stage) const {
    const bool zero = lowering_.strategy.zero;
    return least_of_buckets(zero ? table_.gradient_scatter : table_.gradient_reduce,
                            table_.gradient_reduce_per_layer / (zero ? 2 : 1), stage);
  }
  // What a rank does behind all reductions of its chunks.
  [[nodiscard]] double embedding_sum(int rank) const {
    const int first = placement_.rank_of(0), last = placement_.rank_of(stages() - 1);
    return lowering_.tied && first != last && (rank == first || rank == last) ? table_.embedding_reduce : 0;
  }
  [[nodiscard]] double optimizer(int rank) const {
    return lowering_.optimizer && !table_.optimizer.empty() ? table_.optimizer[rank] : 0;
  }

  [[nodiscard]] double backward_compute(int stage) const {
    const PassChains& c = chains_[stage];
    return std::min(c.I.compute + c.W.compute, c.B_I.compute + c.B_W.compute);
  }
  [[nodiscard]] double backward_alone(int stage) const {
    return std::min(chains_[stage].I.alone, chains_[stage].B_I.alone);
  }

  void set_heads() {
    F_head_.assign(stages(), 0);
    I_head_.assign(stages(), 0);
    life_.assign(stages(), 0);
    for (int s = 0; s < stages(); ++s) {
      if (!placement_.is_first(s))
        F_head_[s] = F_head_[s - 1] + least_ * (chains_[s - 1].F.alone + hop(s - 1, s));
      F_head_[s] = std::max(F_head_[s], gather(s));
    }
    for (int s = stages() - 1; s >= 0; --s) {
      if (placement_.is_last(s)) {
        I_head_[s] = F_head_[s] + least_ * chains_[s].F.alone;
        life_[s] = chains_[s].F.alone;
        continue;
      }
      const double back = backward_alone(s + 1) + hop(s + 1, s);
      I_head_[s] = I_head_[s + 1] + least_ * back;
      life_[s] = chains_[s].F.alone + hop(s, s + 1) + life_[s + 1] + back;
    }
    // The compute stream has one block at a time: a life is from its first compute op to its last.
    for (int s = 0; s < stages(); ++s)
      life_[s] = has_ops(s) ? life_[s] - chains_[s].F.first + backward_compute(s) : 0;
  }

  void set_tails() {
    F_tail_.assign(stages(), 0);
    I_tail_.assign(stages(), 0);
    backward_tail_.assign(stages(), 0);
    for (int s = 0; s < stages(); ++s) {
      const int rank = placement_.rank_of(s);
      if (!placement_.is_first(s)) I_tail_[s] = least_ * hop(s, s - 1) + backward_tail_[s - 1];
      backward_tail_[s] = least_ * backward_alone(s) + I_tail_[s];
      if (has_ops(s))
        backward_tail_[s] = std::max(backward_tail_[s], least_ * backward_compute(s) + reduction(s) +
                                                            embedding_sum(rank) + optimizer(rank));
    }
    for (int s = stages() - 1; s >= 0; --s)
      F_tail_[s] = placement_.is_last(s) ? backward_tail_[s]
                                         : least_ * (hop(s, s + 1) + chains_[s + 1].F.alone) + F_tail_[s + 1];
  }

  // F, I and W of each of a rank's stages. work(chain, stage, to): that of one microbatch; `to`: the stage
  // that the pass sends to, if there is one.
  template <typename Work>
  void set_tasks(int rank, Work work) {
    tasks_.clear();
    if (shares_vocabulary_) tasks_.push_back({0, 0, count_ * work(vocabulary(rank), -1, -1)});
    for (int chunk = 0; chunk < placement_.chunks(); ++chunk) {
      const int s = placement_.stage(rank, chunk);
      const PassChains& c = chains_[s];
      if (!has_ops(s)) continue;
      const double I = std::min(work(c.I, s, s - 1), work(c.B_I, s, s - 1));
      const double both =
          std::min(work(c.I, s, s - 1) + work(c.W, s, -1), work(c.B_I, s, s - 1) + work(c.B_W, s, -1));
      tasks_.push_back({F_head_[s], F_tail_[s], count_ * work(c.F, s, s + 1)});
      tasks_.push_back({I_head_[s], I_tail_[s], count_ * I});
      tasks_.push_back({I_head_[s], 0, count_ * (both - I)});
    }
  }

  double work(int rank, const Weight& weight, const Ramp& ramp = {}) {
    set_tasks(rank, [&](const ChainCost& chain, int, int) { return weight.of(chain); });
    const double last = weight.compute * optimizer(rank), best = best_set(tasks_, last, ramp);
    double reduced = std::numeric_limits<double>::infinity();
    for (int chunk = 0; chunk < placement_.chunks(); ++chunk)
      if (has_ops(placement_.stage(rank, chunk)))
        reduced = std::min(reduced, reduction(placement_.stage(rank, chunk)));
    reduced += embedding_sum(rank);
    if (tasks_.empty() || reduced == 0 || shares_vocabulary_) return best;
    set_tasks(rank,
              [&](const ChainCost& chain, int stage, int) { return without_last(weight, chain, stage); });
    return std::max(best, best_set(tasks_, reduced + optimizer(rank), ramp));
  }
  // Without a last collective of I, which no compute waits for.
  [[nodiscard]] double without_last(const Weight& weight, const ChainCost& chain, int stage) const {
    const bool ends = stage >= 0 && (&chain == &chains_[stage].I || &chain == &chains_[stage].B_I);
    return weight.of(chain) - (ends ? weight.collectives * chain.last : 0);
  }

  // Of steps that overlap. The first gathers of a step may precede the optimizer of the step before.
  double repeated_work(int rank, const Weight& weight) {
    set_tasks(rank,
              [&](const ChainCost& chain, int stage, int) { return without_last(weight, chain, stage); });
    double sum = weight.compute * optimizer(rank);
    if (!table_.gradient_norm.empty()) sum += weight.compute * table_.gradient_norm[rank];
    for (const Task& task : tasks_) sum += task.work;
    return sum - 2 * most_ * weight.collectives * table_.all_gather;
  }

  // Whether no block is empty. What follows an empty one does not wait for the sends before it.
  [[nodiscard]] bool all_have_ops() const {
    return std::ranges::all_of(chains_,
                               [](const PassChains& c) { return c.F.serial() > 0 && c.I.serial() > 0; });
  }
  [[nodiscard]] bool waits_for_sends() const {
    return !shares_vocabulary_ && all_have_ops() &&
           (lowering_.release == Release::blocking || is_batched(lowering_.release, placement_.chunks()));
  }
  [[nodiscard]] double send(int rank, int stage, int to, int peer) const {
    const bool sends = to >= 0 && to < stages() && peer != rank && placement_.rank_of(to) == peer;
    return sends ? hop(stage, to) : 0;
  }

  // The ranks that a rank sends to.
  [[nodiscard]] std::vector<int> peers(int rank) const {
    std::vector<int> found;
    for (int chunk = 0; chunk < placement_.chunks(); ++chunk)
      for (const int by : {-1, 1}) {
        const int to = placement_.stage(rank, chunk) + by;
        if (to < 0 || to == stages()) continue;
        const int peer = placement_.rank_of(to);
        if (peer != rank && std::ranges::find(found, peer) == found.end()) found.push_back(peer);
      }
    return found;
  }

  // The sends on one link; or, at half the time of two at once, all that share the rank's adapter.
  double work_and_sends(int rank, const Weight& weight) {
    const double shared = std::min(table_.transfer_between_nodes, table_.transfer_beside_another / 2);
    std::vector<int> links = peers(rank);
    links.push_back(kAdapter);
    double best = 0;
    for (const int peer : links) {
      double longest = 0;
      set_tasks(rank, [&](const ChainCost& chain, int stage, int to) {
        double seconds = 0;
        if (peer != kAdapter)
          seconds = send(rank, stage, to, peer);
        else if (to >= 0 && to < stages() && !table_.near(rank, placement_.rank_of(to)))
          seconds = shared;
        longest = std::max(longest, seconds);
        return weight.of(chain) - weight.collectives * chain.first + seconds;
      });
      const Ramp lost = weight.compute >= 1 ? ramp(rank) : Ramp{};
      const double all = best_set(tasks_, weight.compute * optimizer(rank), lost);
      best = std::max(best, all - 2 * most_ * longest);
    }
    return best;
  }

  // What the forwards before the first backward lose of effective work of compute.
  [[nodiscard]] Ramp ramp(int rank) const {
    const bool transfers = lowering_.release == Release::released;
    if (shares_vocabulary_ || !all_have_ops() || lowering_.strategy.parts_of_microbatch() > 1 ||
        (!transfers && lowering_.release != Release::blocking))
      return {};
    constexpr double kMost = std::numeric_limits<double>::infinity();
    Ramp ramp{.head = kMost};
    double least_F = kMost, most_I = 0, until = kMost, share = 1, longest = 0, beside = 0;
    for (int chunk = 0; chunk < placement_.chunks(); ++chunk) {
      const int s = placement_.stage(rank, chunk), to = s + 1;
      ramp.head = std::min(ramp.head, F_head_[s]);
      until = std::min(until, I_head_[s]);
      least_F = std::min(least_F, F_tail_[s]);
      most_I = std::max(most_I, I_tail_[s]);
      // If it sends nothing, the next forward runs beside its last collective, and slows that.
      const bool sends = to < stages() && placement_.rank_of(to) != rank;
      if (!sends) beside = std::max(beside, chains_[s].F.last * slowest_collective_);
    }
    for (int chunk = 0; chunk < placement_.chunks(); ++chunk) {
      const int s = placement_.stage(rank, chunk), to = s + 1;
      const ChainCost& F = chains_[s].F;
      const bool sends = to < stages() && placement_.rank_of(to) != rank;
      const double transfer = sends ? hop(s, to) : 0, exposed = F.contending - (sends ? 0 : F.last);
      const double lost = (1 - of_compute_.collectives) * exposed + (transfers ? transfer / 2 : 0);
      const double time = F.serial() + transfer + beside;
      share = std::min(share, lost / time);
      longest = std::max(longest, time);
    }
    ramp.tail = std::min(least_F, most_I);
    ramp.loss = std::max(0.0, share * (until - ramp.head - most_ * longest));
    return ramp;
  }

  double stream(int rank, double ChainCost::*seconds) {
    set_tasks(rank, [&](const ChainCost& chain, int, int) { return chain.*seconds; });
    return best_set(tasks_, 0);
  }

  double link(int rank, int peer) {
    tasks_.clear();
    for (int chunk = 0; chunk < placement_.chunks(); ++chunk) {
      const int s = placement_.stage(rank, chunk);
      const double on = send(rank, s, s + 1, peer), back = send(rank, s, s - 1, peer);
      if (on > 0)
        tasks_.push_back({F_head_[s] + least_ * chains_[s].F.alone, F_tail_[s] - least_ * on, count_ * on});
      if (back > 0)
        tasks_.push_back(
            {I_head_[s] + least_ * backward_alone(s), I_tail_[s] - least_ * back, count_ * back});
    }
    return best_set(tasks_, 0);
  }

  [[nodiscard]] double memory(int rank, int limit) const {
    double begin = std::numeric_limits<double>::infinity(), until = begin, lives = 0, work = 0, forward = 0,
           ahead = 0;  // the next block's gathers
    for (int chunk = 0; chunk < placement_.chunks(); ++chunk) {
      const int s = placement_.stage(rank, chunk);
      if (!has_ops(s)) continue;
      const PassChains& c = chains_[s];
      const double F = of_compute_.of(c.F);
      begin = std::min(begin, F_head_[s]);
      until = std::min(until, I_head_[s]);
      lives += life_[s];
      work += F + std::min(of_compute_.of(c.I) + of_compute_.of(c.W),
                           of_compute_.of(c.B_I) + of_compute_.of(c.B_W));
      forward = std::max(forward, F);
      ahead = std::max(ahead, 2 * of_compute_.collectives * c.F.first);
    }
    if (lives == 0) return 0;
    const double after = until + count_ * work - most_ * (limit * forward + ahead);
    return optimizer(rank) + std::max(begin + count_ / limit * lives, after);
  }

  const Placement& placement_;
  const std::vector<int>& layers_;
  const Lowering& lowering_;
  const CostTable& table_;
  const bool shares_vocabulary_;
  const std::vector<PassChains> chains_;  // by virtual stage
  const Weight of_compute_, of_collectives_;
  const double slowest_collective_;
  double count_ = 0;             // microbatches of the Program, by their factors
  double least_ = 1, most_ = 1;  // factors of a microbatch
  std::vector<double> F_head_, I_head_, F_tail_, I_tail_;
  std::vector<double> backward_tail_;  // from the start of I
  std::vector<double> life_;           // of an activation, with factor 1
  std::vector<Task> tasks_;
};

}  // namespace

double step_bound(const Placement& placement, int microbatches, const std::vector<int>& layers_per_stage,
                  const Lowering& lowering, const CostTable& table, const Contention& contention,
                  Vocabulary vocabulary, int activation_limit) {
  return Bounds(placement, microbatches, layers_per_stage, lowering, table, contention,
                vocabulary != Vocabulary::whole)
      .bound(activation_limit);
}

}  // namespace stp
