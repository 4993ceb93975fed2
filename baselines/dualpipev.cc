// DualPipeV (DeepSeek, 2025), the order of its authors' step: a V placement whose braids pair a forward of
// one chunk with the full backward of the other. STP braids the same chunk instead. m ≥ 2p.
#include "stp/base/error.h"
#include "stp/schedule/generator.h"
#include "stp/schedule/rank_writer.h"

namespace stp {
namespace {

std::vector<Block> dualpipev_rank(int p, int m, int r) {
  RankWriter rank;

  // 1, 2. Warm-up, down the V, then both chunks in turn.
  warm_up(rank, p, r);

  // 3. The first backwards: W is split off so that I leaves early.
  for (int i = 0; i < p - r - 1; ++i) {
    rank.run(rank.input_gradient(1));
    rank.run(rank.weight_gradient());
    rank.run(rank.forward(1));
  }

  // 4. Steady state: braids of different chunks. On the last rank the first gradient arrives so late that a
  // forward braided with it would only wait: they run one after the other.
  for (int i = 0; i < m - 2 * p + r + 1; ++i) {
    if (i == 0 && r == p - 1) {
      rank.run(rank.forward(0));
      rank.run(rank.backward(1));
    } else {
      rank.run({rank.forward(0), rank.backward(1)});
    }
    rank.run({rank.forward(1), rank.backward(0)});
  }

  // 5. The remaining forwards of chunk 1; chunk 0 has none left to braid.
  for (int i = 0; i < p - r - 1; ++i) {
    rank.run(rank.backward(1));
    rank.run({rank.forward(1), rank.backward(0)});
  }

  // 6. Cool-down, both chunks in turn; the second half defers W.
  for (int i = 0; i < 2 * (r + 1); ++i) {
    const int chunk = i % 2 == 0 ? 1 : 0;
    if (i < r + 1) {
      rank.run(rank.backward(chunk));
    } else {
      rank.run(rank.input_gradient(chunk));
    }
  }

  // 7. Cool-down, up the V: deferred weight gradients fill the waits.
  for (int i = 0; i < p - r - 1; ++i) {
    rank.run(rank.weight_gradient());
    rank.run(rank.input_gradient(0));
  }

  // 8. The remaining weight gradients.
  for (int i = 0; i < r + 1; ++i) rank.run(rank.weight_gradient());
  return rank.take();
}

Schedule make_dualpipev(const GeneratorRequest& request) {
  const int p = request.pp, m = request.microbatches;
  if (m < 2 * p)
    throw InputError("", "microbatches",
                     "dualpipev needs m ≥ 2p = " + std::to_string(2 * p) + ", not " + std::to_string(m) +
                         ": with fewer there is no braid in the steady state of rank 0",
                     "use more microbatches, fewer ranks or another schedule");
  return by_rank(request, Placement::v(p), dualpipev_rank);
}

}  // namespace

extern const Generator schedule_dualpipev = {
    .name = "dualpipev",
    .summary = "braids of different chunks, V placement (DeepSeek, 2025)",
    .chunks = 2,
    .make = make_dualpipev,
    .range = "m ≥ 2p",
    .built_into = {"pytorch"}};

}  // namespace stp
