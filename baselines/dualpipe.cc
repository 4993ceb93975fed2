// DualPipe (DeepSeek, 2024), the order of its authors' step: two pipelines against each other, with a copy of
// the model each. Ranks of the first half run DualPipeV's order of p/2 ranks; those of the second half its
// mirror image. p and m even, m ≥ 2p: each pipeline has m/2 microbatches.
#include "stp/base/error.h"
#include "stp/schedule/generator.h"

namespace stp {

extern const Generator schedule_dualpipev;

namespace {

Block mirrored(const Block& block) {
  const auto other = [](Action action) {
    action.chunk = static_cast<int16_t>(1 - action.chunk);
    return action;
  };
  const auto actions = block.actions();
  return block.braided() ? Block(other(actions[0]), other(actions[1])) : Block(other(actions[0]));
}

Schedule make_dualpipe(const GeneratorRequest& request) {
  const int p = request.pp, m = request.microbatches;
  if (p % 2 != 0)
    throw InputError("", "pp", "dualpipe needs an even number of ranks, not " + std::to_string(p),
                     "use another number, or dualpipev");
  if (m % 2 != 0 || m < 2 * p)
    throw InputError(
        "", "microbatches",
        "dualpipe needs an even m ≥ 2p = " + std::to_string(2 * p) + ", not " + std::to_string(m),
        "use more microbatches, fewer ranks or another schedule");
  Schedule half = make_schedule(schedule_dualpipev, {p / 2, m / 2});
  Schedule schedule{"", Placement::bidirectional(p), m / 2, std::move(half.ranks)};
  for (int rank = p / 2; rank-- > 0;) {
    std::vector<Block>& blocks = schedule.ranks.emplace_back();
    for (const Block& block : schedule.ranks[rank]) blocks.push_back(mirrored(block));
  }
  return schedule;
}

}  // namespace

extern const Generator schedule_dualpipe = {
    .name = "dualpipe",
    .summary = "two pipelines against each other, two copies of the model (DeepSeek, 2024)",
    .chunks = 2,
    .make = make_dualpipe,
    .range = "even p, even m ≥ 2p"};

}  // namespace stp
