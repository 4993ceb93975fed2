// DHelix (USTC, arXiv 2411.15871; later DHeLlam and TWIST): the W-shaped pipeline. A V placement on which the
// forward of microbatch k and the backward of microbatch k − p travel as one pair, down the ranks as F0&B1
// and up again as F1&B0. The first p forwards and the last p backwards run alone. No backward is split.
#include "stp/schedule/generator.h"

namespace stp {
namespace {

// In units of a pair: pair k, which starts at time 2k, is on rank r at time 2k + r on its way down and at
// 2k + 2p − 1 − r on its way up. These are of different parity: no two pairs meet.
std::vector<Block> dhelix_rank(int p, int m, int r) {
  std::vector<Block> blocks;
  const auto add = [&](int16_t chunk, int k) {
    const Action forward{Pass::F, chunk, k}, backward{Pass::B, static_cast<int16_t>(1 - chunk), k - p};
    const bool has_forward = k >= 0 && k < m, has_backward = k >= p && k < m + p;
    if (has_forward && has_backward)
      blocks.emplace_back(forward, backward);
    else if (has_forward)
      blocks.emplace_back(forward);
    else if (has_backward)
      blocks.emplace_back(backward);
  };
  const int ahead = p - r;  // pairs that are down before the first is up
  for (int k = 0; k < m + p + ahead; ++k) {
    add(1, k - ahead);
    add(0, k);
  }
  return blocks;
}

}  // namespace

extern const Generator schedule_dhelix = {
    .name = "dhelix",
    .summary = "the W-shaped pipeline: pairs F0&B1 down the ranks, F1&B0 up (arXiv 2411.15871)",
    .chunks = 2,
    .make = [](const GeneratorRequest& request) {
      return by_rank(request, Placement::v(request.pp), dhelix_rank);
    }};

}  // namespace stp
