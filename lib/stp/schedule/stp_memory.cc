// STP with the memory of ZB-V and DualPipeV: the same braids, of one chunk's forward and backward, with no
// more activations than a microbatch's path through the pipeline needs. The paper's appendix draws a
// "memory-efficient warm-up" (figures 11b, 12d) whose order is not published as text or code; this order is
// derived from the method as the main text describes it, and may differ from theirs.
//
// In the steady state each of a microbatch's 4p hops takes one block, and a rank runs two blocks a
// microbatch: rank r holds 2p − r microbatches of chunk 0 and r + 1 of chunk 1, one more inside a braid.
// STP's warm-up holds more, so that no rank waits while the first I goes down, braided, at two passes a hop.
// Here the first I goes down alone, at one pass a hop; later ones have more time for braids. In the cool-down
// the last I go up alone too, since with STP's full backwards there would be too few deferred weight
// gradients to fill the waits.
#include "stp/schedule/generator.h"
#include "stp/schedule/rank_writer.h"
#include "stp/schedule/short_stp.h"

namespace stp {
namespace {

// Steps 3 and 4: the first backwards, W split off, for a rank with `below` ranks further down.
void first_backwards(RankWriter& rank, int below) {
  // 3. At the turn of the V, ranks wait for the first half of the I: these run alone, and W hides the
  // forward's all-reduce. The others can wait for a braid.
  const int urgent = (below + 1) / 2;
  for (int i = 0; i < urgent; ++i) {
    rank.run(rank.input_gradient(1));
    rank.run({rank.forward(1), rank.weight_gradient()});
  }
  for (int i = urgent; i < below; ++i) {
    rank.run({rank.forward(1), rank.input_gradient(1)});
    if (i < below - 1) rank.run(rank.weight_gradient());
  }

  // 4. The forward by which the steady state is ahead, with the remaining W.
  const Action ahead = rank.forward(0);
  rank.run(urgent < below ? Block{ahead, rank.weight_gradient()} : ahead);
}

// Step 6: the remaining forwards of chunk 1; chunk 0 has none left to braid. I leaves early, and W follows,
// except for the last, which fills a later wait; with one rank there are no waits.
void last_forwards(RankWriter& rank, int p, int below) {
  for (int i = 0; i < below; ++i) {
    rank.run({rank.forward(1), rank.input_gradient(1)});
    rank.run(rank.weight_gradient());
    rank.run(rank.backward(0));
  }
  rank.run({rank.forward(1), p > 1 ? rank.input_gradient(1) : rank.backward(1)});
}

// Steps 7 to 9.
void cool_down(RankWriter& rank, int p, int r) {
  // 7. Both chunks in turn; the last r − 1 defer W.
  for (int i = 0; i < 2 * (r + 1); ++i) {
    const int chunk = i % 2;
    rank.run(i < r + 3 ? rank.backward(chunk) : rank.input_gradient(chunk));
  }

  // 8. Up the V: deferred weight gradients fill the waits. No rank waits for I0 of rank 0.
  for (int i = 0; i < p - r; ++i) {
    rank.run(r == 0 ? rank.backward(0) : rank.input_gradient(0));
    if (r > 0 || (i == 0 && p > 1)) rank.run(rank.weight_gradient());
  }

  // 9. The remaining weight gradients.
  for (int i = 0; i < r; ++i) rank.run(rank.weight_gradient());
}

std::vector<Block> stp_memory_rank(int p, int m, int r) {
  RankWriter rank;
  const int below = p - r - 1;  // ranks further down

  // 1, 2. Warm-up, down the V, then both chunks in turn.
  warm_up(rank, p, r);
  first_backwards(rank, below);

  // 5. Steady state: braids of a chunk's forward and full backward.
  for (int i = 0; i < m - 2 * p + r; ++i)
    for (const int chunk : {1, 0}) rank.run({rank.forward(chunk), rank.backward(chunk)});

  last_forwards(rank, p, below);
  cool_down(rank, p, r);
  return rank.take();
}

Schedule make_stp_memory(const GeneratorRequest& request) {
  const int p = request.pp, m = request.microbatches;
  // With fewer, the warm-up of rank 0 has more forwards than there are microbatches.
  if (m < 2 * p) return {"", Placement::v(p), m, short_stp(p, m, 2 * p + 2)};
  return by_rank(request, Placement::v(p), stp_memory_rank);
}

}  // namespace

extern const Generator schedule_stp_memory = {
    .name = "stp-memory",
    .summary = "STP's braids with ZB-V's memory, V placement (after STP's appendix, NeurIPS 2025)",
    .chunks = 2,
    .make = make_stp_memory};

}  // namespace stp
