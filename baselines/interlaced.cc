// The interlaced pipeline (nnScaler; as in Yeung et al., arXiv 2411.05288): 1F1B in which all ranks run the
// head's forward and its gradients together, as tensor parallelism does. It holds 3p/2 microbatches. Any m.
#include <algorithm>
#include <vector>

#include "baselines/vocabulary.h"
#include "stp/schedule/generator.h"

namespace stp {
namespace {

std::vector<Block> rank_of_interlaced(int p, int m, int r) {
  const int most = 3 * p / 2, warm_up = std::min(most - r, m), down = std::min(p - r, m);
  VocabularyRank rank(m, Pass::T);
  const auto head = [&](bool gradient) {
    const int i = rank.done(Pass::S);
    rank.run({Pass::S, Pass::T});
    if (i >= std::min(p, m) - 1) rank.run(Pass::E);
    if (gradient && i >= std::min(p, m) + 1 - p % 2) rank.run(Pass::G);
  };
  rank.run({Pass::E}, std::min(most, m) - warm_up + 1);
  rank.run({Pass::E, Pass::F}, warm_up);
  for (int i = 0; i < down; ++i) head(false);
  const int waiting = std::max(0, warm_up - down - (p - r - 1) / 2);
  for (int i = 0; i < m; ++i) {
    const bool steady = i >= waiting && rank.left(Pass::F), F_first = r % 2 == p % 2;
    if (steady && F_first) rank.run(Pass::F);
    rank.run(Pass::B);
    if (steady && !F_first) rank.run(Pass::F);
    if (rank.left(Pass::S) && (steady || i < waiting)) {
      head(true);
    } else {
      rank.run({Pass::S, Pass::T});
      if (m >= most) rank.run(Pass::G);  // else it would wait for a rank that waits for this S
    }
  }
  return rank.end();
}

}  // namespace

extern const Generator schedule_interlaced = {
    .name = "interlaced",
    .summary = "1F1B, all ranks run the head together (nnScaler, as in Vocabulary Parallelism, 2025)",
    .chunks = 1,
    .make = [](const GeneratorRequest& request) {
      return by_rank(request, Placement::loop(request.pp, 1), rank_of_interlaced);
    }};

}  // namespace stp
