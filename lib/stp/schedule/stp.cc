// The STP schedule ("Synergistic Tensor and Pipeline Parallelism", section 4, figure 5): braids of one
// chunk's forward and backward on a V placement. From m = 3p − 1 on the order is the authors'; for smaller m
// theirs is wrong or missing, and short_stp() finds one.
#include "stp/schedule/generator.h"
#include "stp/schedule/rank_writer.h"
#include "stp/schedule/short_stp.h"

namespace stp {
namespace {

std::vector<Block> stp_rank(int p, int m, int r) {
  RankWriter rank;

  // 1, 2. Warm-up, down the V, then both chunks in turn.
  warm_up(rank, p, r);

  // 3. The forwards for which later braids have no partner: in pairs, one alone if their number is odd.
  if ((r + 1) % 2 == 1) rank.run(rank.forward(0));
  for (int i = 0; i < (r + 1) / 2; ++i) rank.run({rank.forward(0), rank.forward(0)});

  // 4. The first backwards: W is split off and braided with the next forward, so that I leaves early.
  for (int i = 0; i < p - r - 1; ++i) {
    rank.run({rank.forward(1), rank.input_gradient(1)});
    rank.run({rank.forward(0), rank.weight_gradient()});
  }

  // 5. Steady state: braids of a chunk's forward and full backward, chunk 1 first and last.
  // The last r defer W.
  const int braids = 2 * (m - 3 * p + 1) + 1 + 2 * r;
  for (int i = 0; i < braids; ++i) {
    const int chunk = i % 2 == 0 ? 1 : 0;
    rank.run({rank.forward(chunk), i < braids - r ? rank.backward(chunk) : rank.input_gradient(chunk)});
  }

  // 6. The remaining forwards of chunk 1, braided; chunk 0 has none left to braid.
  const int left = m - p - 1 - braids / 2;
  for (int i = 0; i < left; ++i) {
    rank.run(rank.backward(0));
    rank.run({rank.forward(1), rank.input_gradient(1)});
  }

  // 7. Cool-down, both chunks in turn.
  for (int i = 0; i < r + 1; ++i) {
    rank.run(rank.backward(0));
    rank.run(rank.backward(1));
  }

  // 8. Cool-down, up the V: deferred weight gradients fill the waits.
  for (int i = 0; i < 2 * (p - r - 1) + 1; ++i) {
    if (i % 2 == 0) {
      rank.run(rank.backward(0));
    } else {
      rank.run(rank.weight_gradient());
      rank.run(rank.weight_gradient());
    }
  }

  // 9. The remaining weight gradients.
  for (int i = 0; i < 2 * r; ++i) rank.run(rank.weight_gradient());

  return rank.take();
}

Schedule make_stp(const GeneratorRequest& request) {
  const int p = request.pp, m = request.microbatches;
  // With fewer, the steps' warm-up has more forwards than there are microbatches.
  if (m < 3 * p - 1) return {"", Placement::v(p), m, short_stp(p, m, 4 * p - 1)};
  return by_rank(request, Placement::v(p), stp_rank);
}

}  // namespace

extern const Generator schedule_stp = {
    .name = "stp",
    .summary = "forward and backward of a chunk braided, V placement (STP, NeurIPS 2025)",
    .chunks = 2,
    .make = make_stp,
    .smaller = {"stp-memory", "dualpipev"}};

}  // namespace stp
