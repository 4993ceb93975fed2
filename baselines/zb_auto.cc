// Zero Bubble's automatic schedules (Qi et al., "Zero Bubble Pipeline Parallelism", 2024): one chunk a rank,
// every backward split, any costs, p and m, and any limit of activations, held from F to W, or in part to I.
// (By default they count a small part as freed by I: from a limit of 17 on, their orders may hold one more.)
// Greedy simulations with all eight flag sets; the first with the shortest longest span wins.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "stp/schedule/generator.h"
#include "stp/schedule/pipeline_state.h"

namespace stp {
namespace {

class Greedy {
 public:
  Greedy(const GeneratorRequest& request, int limit, int flags)
      : request_(request), limit_(limit), flags_(flags) {
    warm_up();
    for (int i = 1; i < m_; ++i) round();
    for (int r = 0; r < p_; ++r) {
      while (ranks_[r].deferred() > 0) run(r, Pass::W);
      span_ = std::max(span_, state_.free(r) - r * (F_ + p2p_));
    }
  }
  [[nodiscard]] bool better_than(const Greedy& other) const { return !at_most(other.span_, span_); }
  Schedule schedule() {
    Schedule made{"", Placement::loop(p_, 1), m_, {}};
    for (Rank& rank : ranks_) made.ranks.push_back(std::move(rank.blocks));
    return made;
  }

 private:
  struct Rank {
    std::array<int, 3> done{};  // F, I, W
    double idle = 0;            // since the start of its first F
    std::vector<Block> blocks;
    [[nodiscard]] int deferred() const { return done[1] - done[2]; }
  };

  // Whether one more activation does not fit. From I to W, one counts as the part that W needs.
  [[nodiscard]] bool full(int r) const {
    const Rank& rank = ranks_[r];
    return rank.done[0] - rank.done[1] + request_.kept_for_W * rank.deferred() + 1 > limit_ + 1e-9;
  }
  // Sums of the same costs count as equal.
  [[nodiscard]] bool at_most(double a, double b) const { return a <= b + 1e-9 * (F_ + I_ + W_ + p2p_); }
  [[nodiscard]] double arrival(int r, Pass pass) const {  // of the input of the rank's next pass
    const int hop = hop_of(p_, r, pass == Pass::I), microbatch = ranks_[r].done[static_cast<size_t>(pass)];
    return pass == Pass::W ? 0 : state_.arrival(state_.input(hop, microbatch));
  }

  void run(int r, Pass pass) {
    auto& [done, idle, blocks] = ranks_[r];
    const auto kind = static_cast<size_t>(pass);
    const double free = state_.free(r), start = std::max(free, arrival(r, pass));
    if (done[0] > 0) idle += start - free;
    most_idle_ = std::max(most_idle_, idle);
    const int i = done[kind]++;
    blocks.emplace_back(Action{pass, 0, i});
    state_.occupy(r, start + std::array{F_, I_, W_}[kind]);
    if (pass != Pass::W) state_.deliver_output(r, hop_of(p_, r, pass == Pass::I), i, state_.free(r));
  }

  // The first F and I of each rank, and between them the F for which the wait has room.
  void warm_up() {
    for (int r = 0; r < p_; ++r) run(r, Pass::F);
    std::vector<int> more(p_);
    double sent = state_.free(p_ - 1) + I_;  // the first gradient, by the rank behind
    for (int r = p_ - 2; r >= 0; --r) {
      double end = state_.free(r), arrives = sent + p2p_;
      const auto fits = [&] { return stops_early_ ? at_most(end + F_, arrives) : !at_most(arrives, end); };
      for (; 1 + more[r] < std::min(m_, limit_) && fits(); ++more[r]) end += F_;
      sent = std::max(end, arrives) + I_;
    }
    for (int r = 0; r < p_; ++r) {
      if (r > 0 && 1 + more[r] < m_) more[r] = std::clamp(more[r - 1] - 1, 0, more[r]);
      for (int i = 0; i < more[r]; ++i) run(r, Pass::F);
    }
    for (int r = p_ - 1; r >= 0; --r) run(r, Pass::I);
  }

  // At most one F, then one I, on each rank.
  void round() {
    int first = p_;  // of the ranks that run an F
    while (first > 0 && wants_forward(first - 1)) --first;
    for (int r = first; r < p_; ++r) {
      while (full(r)) run(r, Pass::W);  // without any left, there is room: an I ended the round before
      fill_and_run(r, Pass::F);
    }
    while (ranks_[0].done[0] == m_ && ranks_[0].deferred() > 0) run(0, Pass::W);  // no rank waits for it
    for (int r = p_ - 1; r >= 0; --r) fill_and_run(r, Pass::I);
  }

  // Whether the rank runs an F in this round if the one behind it does.
  [[nodiscard]] bool wants_forward(int r) const {
    const Rank& rank = ranks_[r];
    if (rank.done[0] == m_) return false;
    if (!favours_I_ || r + 1 == p_ || rank.done[0] < ranks_[r + 1].done[0] + 2) return true;
    const double wait = state_.free(r + 1) + F_ + I_ + p2p_ - state_.free(r);  // for the next gradient
    const double needed = F_ + (full(r) ? W_ : 0);
    return !at_most(wait, 0) && (at_most(needed, wait) || !at_most(wait, most_idle_ - rank.idle));
  }

  // The next F or I, behind the W that fill the wait for its input.
  void fill_and_run(int r, Pass pass) {
    const Rank& rank = ranks_[r];
    const double input = arrival(r, pass);
    while (rank.deferred() > 0 && at_most(state_.free(r) + W_, input)) run(r, Pass::W);
    const double wait = input - state_.free(r), spare = fills_all_ ? 0 : most_idle_ - rank.idle;
    if (rank.deferred() > 0 && !at_most(wait, spare)) run(r, Pass::W);
    run(r, pass);
  }

  GeneratorRequest request_;
  int limit_, flags_, p_ = request_.pp, m_ = request_.microbatches;
  double F_ = request_.costs.F, I_ = request_.costs.I, W_ = request_.costs.W, p2p_ = request_.costs.p2p;
  bool stops_early_ = (flags_ & 4) != 0;  // the warm-up stops before the gradient is there, not behind it
  bool favours_I_ = (flags_ & 2) != 0;    // a rank two F ahead may leave one out for the next gradient
  bool fills_all_ = (flags_ & 1) != 0;    // waits, also those that leave a rank less idle than another is
  std::vector<Rank> ranks_ = std::vector<Rank>(p_);
  PipelineState state_{Placement::loop(p_, 1), m_, p2p_};
  double most_idle_ = 0, span_ = 0;  // the longest of a rank
};

Schedule make_greedy(const GeneratorRequest& request, int halves) {
  const int limit =
      request.options.memory_limit == 0 ? (halves * request.pp + 1) / 2 : request.options.memory_limit;
  Greedy best(request, limit, 7);
  for (int flags = 6; flags >= 0; --flags)
    if (Greedy other(request, limit, flags); other.better_than(best)) best = std::move(other);
  return best.schedule();
}

constexpr Generator generator(const char* name, const char* summary,
                              Schedule (*make)(const GeneratorRequest&)) {
  return {
      .name = name, .summary = summary, .chunks = 1, .cost_aware = true, .takes_limit = true, .make = make};
}
}  // namespace

extern const Generator schedule_zb_auto =
    generator("zb-auto", "backwards split, W fills the waits, any memory limit (Zero Bubble, 2024)",
              [](const GeneratorRequest& request) { return make_greedy(request, 3); });
extern const Generator schedule_zb_1p =
    generator("zb-1p", "ZB-auto with the memory of 1F1B (Zero Bubble, 2024)",
              [](const GeneratorRequest& request) { return make_greedy(request, 2); });
extern const Generator schedule_zb_2p =
    generator("zb-2p", "ZB-auto with twice the memory of 1F1B (Zero Bubble, 2024)",
              [](const GeneratorRequest& request) { return make_greedy(request, 4); });
}  // namespace stp
