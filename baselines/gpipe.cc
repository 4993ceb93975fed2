// GPipe (Huang et al. 2019): all forwards, then all backwards. The backwards come in the order of the
// forwards, as in PyTorch; GPipe's own figure has the last microbatch first, which takes as long. Any m;
// every rank holds the activations of m microbatches.
#include "stp/schedule/generator.h"

namespace stp {
namespace {

Schedule make_gpipe(const GeneratorRequest& request) {
  const int p = request.pp, m = request.microbatches;
  Schedule schedule{"gpipe", Placement::loop(p, 1), m, {}};
  for (int r = 0; r < p; ++r) {
    std::vector<Block> blocks;

    // 1. All forwards.
    for (int i = 0; i < m; ++i) blocks.emplace_back(Action{Pass::F, 0, i});

    // 2. All backwards.
    for (int i = 0; i < m; ++i) blocks.emplace_back(Action{Pass::B, 0, i});
    schedule.ranks.push_back(std::move(blocks));
  }
  return schedule;
}

}  // namespace

extern const Generator schedule_gpipe = {.name = "gpipe",
                                         .summary = "all forwards, then all backwards (GPipe, 2019)",
                                         .chunks = 1,
                                         .make = make_gpipe,
                                         .built_into = {"pytorch"}};

}  // namespace stp
