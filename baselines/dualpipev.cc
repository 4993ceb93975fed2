// DualPipeV (DeepSeek, 2025), the order of its authors' step: a V placement whose braids pair a forward of
// one chunk with the full backward of the other. STP braids the same chunk instead. m ≥ 2p.
#include <deque>

#include "stp/base/error.h"
#include "stp/schedule/generator.h"

namespace stp {
namespace {

// One rank's list, written with the next forward and the next backward of each chunk and the queue of W put
// off.
class RankWriter {
 public:
  void forward(int chunk) { blocks_.emplace_back(next(Pass::F, chunk)); }
  void backward(int chunk) { blocks_.emplace_back(next(Pass::B, chunk)); }
  void braid(int forward_chunk, int backward_chunk) {
    blocks_.emplace_back(next(Pass::F, forward_chunk), next(Pass::B, backward_chunk));
  }
  void input_gradient(int chunk) {
    Action action = next(Pass::I, chunk);
    blocks_.emplace_back(action);
    action.pass = Pass::W;
    put_off_.push_back(action);
  }
  void weight_gradient() {
    blocks_.emplace_back(put_off_.front());
    put_off_.pop_front();
  }
  std::vector<Block> take() { return std::move(blocks_); }

 private:
  Action next(Pass pass, int chunk) {
    return {pass, static_cast<int16_t>(chunk), pass == Pass::F ? forwards_[chunk]++ : backwards_[chunk]++};
  }

  int forwards_[2] = {0, 0};
  int backwards_[2] = {0, 0};
  std::deque<Action> put_off_;
  std::vector<Block> blocks_;
};

std::vector<Block> dualpipev_rank(int p, int m, int r) {
  RankWriter rank;

  // 1. Warm-up, down the V.
  for (int i = 0; i < 2 * (p - r - 1); ++i) rank.forward(0);

  // 2. Warm-up, both chunks in turn.
  for (int i = 0; i < r + 1; ++i) {
    rank.forward(0);
    rank.forward(1);
  }

  // 3. The first backwards come down: W is split off so that I leaves early.
  for (int i = 0; i < p - r - 1; ++i) {
    rank.input_gradient(1);
    rank.weight_gradient();
    rank.forward(1);
  }

  // 4. Steady state: braids of different chunks. On the last rank the first gradient comes so late that the
  // forward beside it would only wait for it: they run one after the other.
  for (int i = 0; i < m - 2 * p + r + 1; ++i) {
    if (i == 0 && r == p - 1) {
      rank.forward(0);
      rank.backward(1);
    } else {
      rank.braid(0, 1);
    }
    rank.braid(1, 0);
  }

  // 5. The forwards of chunk 1 that are left; chunk 0 has none left to braid.
  for (int i = 0; i < p - r - 1; ++i) {
    rank.backward(1);
    rank.braid(1, 0);
  }

  // 6. Cool-down, both chunks in turn; the second half puts W off.
  for (int i = 0; i < 2 * (r + 1); ++i) {
    const int chunk = i % 2 == 0 ? 1 : 0;
    if (i < r + 1) {
      rank.backward(chunk);
    } else {
      rank.input_gradient(chunk);
    }
  }

  // 7. Cool-down, up the V: the weight gradients put off fill the waits.
  for (int i = 0; i < p - r - 1; ++i) {
    rank.weight_gradient();
    rank.input_gradient(0);
  }

  // 8. The weight gradients that are left.
  for (int i = 0; i < r + 1; ++i) rank.weight_gradient();
  return rank.take();
}

Schedule make_dualpipev(const GeneratorRequest& request) {
  const int p = request.pp, m = request.microbatches;
  if (m < 2 * p)
    throw InputError("", "microbatches",
                     "dualpipev needs m ≥ 2p = " + std::to_string(2 * p) + ", not " + std::to_string(m) +
                         ": with fewer there is no braid in the steady state of rank 0",
                     "use more microbatches, fewer ranks or another schedule");
  Schedule schedule{"dualpipev", Placement::v(p), m, {}};
  for (int r = 0; r < p; ++r) schedule.ranks.push_back(dualpipev_rank(p, m, r));
  return schedule;
}

}  // namespace

extern const Generator schedule_dualpipev = {
    "dualpipev", "braids of different chunks, V placement (DeepSeek, 2025)", 2, false, false, make_dualpipev,
    "m ≥ 2p"};

}  // namespace stp
