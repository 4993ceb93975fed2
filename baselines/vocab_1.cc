// Vocabulary parallelism over 1F1B (Yeung et al., arXiv 2411.05288): all ranks share the head and the
// embedding. vocab-1 has two barriers a microbatch, vocab-2 one: so many more microbatches are alive than in
// 1F1B. Any m.
#include <algorithm>
#include <vector>

#include "baselines/vocabulary.h"
#include "stp/schedule/generator.h"

namespace stp {
namespace {

// Where a rank's S stands in its cycle, and how many S come before its first B.
struct Cycle {
  bool behind_F;
  int warm_up;
};

// From the last rank up. A backward takes twice as long as a forward. Each rank higher, B begins a B later,
// and S, which all ranks run together, begins earlier by an F. When it would stand before its B, F goes
// before it, and the next rank up begins its cycles one S sooner.
std::vector<Cycle> cycles(int p) {
  constexpr int kF = 1, kB = 2;
  std::vector<Cycle> up{{false, 0}};
  for (int early = 0; static_cast<int>(up.size()) < p;) {
    if (up.back().behind_F) {
      early -= kB - kF;
      up.push_back({false, up.back().warm_up});
    } else {
      const bool fits = early + kF <= kB;
      if (fits) early += kF;
      up.push_back({!fits, up.back().warm_up + 1});
    }
  }
  return {up.rbegin(), up.rend()};
}

std::vector<Block> rank_of_vocabulary(int p, int m, int r, Pass gradients, const std::vector<Cycle>& all) {
  const auto [behind_F, before_B] = all[r];
  const int barriers = gradients == Pass::T ? 2 : 1, first_before_B = all[0].warm_up;
  VocabularyRank rank(m, gradients);

  // 1. Warm-up: a forward for each later rank, this one, and one for each barrier.
  rank.run({Pass::E}, std::min(p, m) - std::min(p - r, m) + 1);
  rank.run({Pass::E, Pass::F}, p - r);
  for (int barrier = 0; barrier < barriers; ++barrier) {
    rank.run_head();
    if (barrier + 1 < barriers) rank.run(Pass::E);
    rank.run(Pass::F);
  }
  for (int i = 0; i < before_B; ++i) {
    if (rank.left(Pass::S)) rank.run_head();
    if (i + 1 >= first_before_B) rank.run(Pass::E);
  }

  // 2. Cycles. The embedding keeps about p/2 microbatches away from S.
  for (int i = 0; i < m; ++i) {
    const bool forward = rank.left(Pass::F);
    rank.run(Pass::B);
    if (behind_F) rank.run(Pass::F);
    const int head = rank.done(gradients) + 1;
    const bool gradient = head >= first_before_B + barriers + 1;
    if (rank.left(Pass::S) || (barriers == 2 && rank.left(gradients))) {
      rank.run_head();
      if (forward && head >= first_before_B + barriers - 1) rank.run(Pass::E);
    }
    if (gradient) rank.run(Pass::G);
    if (!behind_F) rank.run(Pass::F);
  }
  return rank.end();
}

Schedule make_vocabulary(const GeneratorRequest& request, Pass gradients) {
  const std::vector<Cycle> all = cycles(request.pp);
  return by_rank(request, Placement::loop(request.pp, 1),
                 [&](int p, int m, int r) { return rank_of_vocabulary(p, m, r, gradients, all); });
}
}  // namespace

extern const Generator schedule_vocab_1 = {
    .name = "vocab-1",
    .summary = "1F1B, all ranks share the vocabulary, two barriers (Vocabulary Parallelism, 2025)",
    .chunks = 1,
    .make = [](const GeneratorRequest& request) { return make_vocabulary(request, Pass::T); }};
extern const Generator schedule_vocab_2 = {
    .name = "vocab-2",
    .summary = "the same with one barrier (Vocabulary Parallelism, 2025)",
    .chunks = 1,
    .make = [](const GeneratorRequest& request) { return make_vocabulary(request, Pass::U); }};
}  // namespace stp
