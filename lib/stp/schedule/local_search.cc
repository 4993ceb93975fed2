#include "stp/schedule/local_search.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "stp/schedule/timing.h"
#include "stp/schedule/validate.h"

namespace stp {
namespace {

constexpr int kFar = 6;                             // blocks that an action moves at most
constexpr double kHottest = 4e-3, kColdest = 1e-5;  // temperatures, by the step time of the start
constexpr int kMostRefused = 2000;                  // proposals in a row: then no move is left
constexpr int64_t kFewestMoves = int64_t{1} << 8;

// Whether each W stands behind its I.
bool has_W_behind_I(const Schedule& schedule, int rank) {
  std::vector<uint8_t> done(static_cast<size_t>(schedule.chunks()) * schedule.microbatches);
  for (const Block& block : schedule.ranks[rank])
    for (const Action& action : block.actions()) {
      uint8_t& I = done[static_cast<size_t>(action.chunk) * schedule.microbatches + action.microbatch];
      if (action.pass == Pass::W && I == 0) return false;
      if (action.pass == Pass::I) I = 1;
    }
  return true;
}

// Whether an order made by moves is valid (validate.h) and holds few enough activations.
bool is_feasible(const Schedule& schedule, const SearchRequest& request) {
  for (int rank = 0; rank < schedule.pp(); ++rank)
    if (!has_W_behind_I(schedule, rank)) return false;
  if (std::ranges::max(peak_activations(schedule, request.freed_at_I)) > request.activation_limit)
    return false;
  return std::ranges::equal(startable_blocks(schedule), schedule.ranks, {}, {}, &std::vector<Block>::size);
}

class Moves {
 public:
  explicit Moves(uint64_t seed) : random_(seed) {}

  /// Changes a rank's blocks. False: the move drawn is not possible there.
  bool change(std::vector<Block>& blocks) {
    const size_t at = below(blocks.size());
    const uint64_t kind = below(100);
    if (kind < 30) return relocate(blocks, at, near(blocks, at));
    if (kind < 50) return braid(blocks, at, near(blocks, at));
    if (kind < 65) return unbraid(blocks, at);
    if (kind < 85) return exchange(blocks, at, near(blocks, at));
    return kind < 93 ? split(blocks, at) : merge(blocks, at);
  }
  uint64_t below(uint64_t end) { return random_() % end; }
  /// In (0, 1].
  double uniform() { return (static_cast<double>(random_() >> 11) + 1) / 9007199254740992.0; }

 private:
  using Blocks = std::vector<Block>;

  size_t near(const Blocks& blocks, size_t at) {
    const size_t distance = 1 + std::min(below(kFar), below(kFar));
    if (below(2) == 0) return at >= distance ? at - distance : 0;
    return std::min(at + distance, blocks.size() - 1);
  }
  static bool relocate(Blocks& blocks, size_t from, size_t to) {
    const auto begin = blocks.begin() + static_cast<std::ptrdiff_t>(std::min(from, to)),
               end = blocks.begin() + static_cast<std::ptrdiff_t>(std::max(from, to)) + 1;
    std::rotate(begin, from < to ? begin + 1 : end - 1, end);
    return from != to;
  }
  void insert(Blocks& blocks, size_t at, const Block& block) {
    blocks.insert(blocks.begin() + static_cast<std::ptrdiff_t>(std::min(at, blocks.size())), block);
  }
  Block pair(const Action& a, const Action& b) { return below(2) == 0 ? Block(a, b) : Block(b, a); }
  static bool alike(const Action& a, const Action& b) {
    return a.chunk == b.chunk && a.microbatch == b.microbatch;
  }
  bool braid(Blocks& blocks, size_t a, size_t b) {
    if (a == b || blocks[a].braided() || blocks[b].braided()) return false;
    if (alike(blocks[a].actions()[0], blocks[b].actions()[0])) return false;
    blocks[a] = pair(blocks[a].actions()[0], blocks[b].actions()[0]);
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(b));
    return true;
  }
  bool unbraid(Blocks& blocks, size_t at) {
    if (!blocks[at].braided()) return false;
    const Block whole = blocks[at];
    const size_t first = below(2);
    blocks[at] = Block(whole.actions()[first]);
    insert(blocks, at + 1 + (below(2) == 0 ? 0 : below(kFar)), Block(whole.actions()[1 - first]));
    return true;
  }
  // Exchanges an action of two blocks.
  bool exchange(Blocks& blocks, size_t a, size_t b) {
    if (a == b) return false;
    std::array<std::vector<Action>, 2> of;
    for (const size_t side : {0, 1}) {
      const auto actions = blocks[side == 0 ? a : b].actions();
      of[side].assign(actions.begin(), actions.end());
    }
    std::swap(of[0][below(of[0].size())], of[1][below(of[1].size())]);
    for (const size_t side : {0, 1}) {
      if (of[side].size() == 2 && alike(of[side][0], of[side][1])) return false;
      blocks[side == 0 ? a : b] = of[side].size() == 1 ? Block(of[side][0]) : pair(of[side][0], of[side][1]);
    }
    return true;
  }
  static bool replace(Block& block, const Action& from, Pass pass) {
    std::array<Action, 2> actions{};
    std::ranges::copy(block.actions(), actions.begin());
    for (Action& action : actions)
      if (action == from) action.pass = pass;
    block = block.braided() ? Block(actions[0], actions[1]) : Block(actions[0]);
    return true;
  }
  bool split(Blocks& blocks, size_t at) {
    for (const Action action : blocks[at].actions()) {
      if (action.pass != Pass::B) continue;
      replace(blocks[at], action, Pass::I);
      insert(blocks, at + 1 + below(2 * kFar), Block(Action{Pass::W, action.chunk, action.microbatch}));
      return true;
    }
    return false;
  }
  // W goes to its I.
  bool merge(Blocks& blocks, size_t at) {
    const Action W = blocks[at].actions()[0];
    if (blocks[at].braided() || W.pass != Pass::W) return false;
    const Action I{Pass::I, W.chunk, W.microbatch};
    for (size_t before = at; before-- > 0;)
      if (std::ranges::find(blocks[before].actions(), I) != blocks[before].actions().end()) {
        blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(at));
        return replace(blocks[before], I, Pass::B);
      }
    return false;
  }

  std::mt19937_64 random_;
};

}  // namespace

SearchResult local_search(const Schedule& start, double start_s, const SearchRequest& request) {
  using End = SearchResult::End;
  SearchResult best{End::nothing_found, start, start_s, 0};
  Moves moves(request.seed);
  const int64_t round = std::max(request.moves / kSearchRounds, std::min(request.moves, kFewestMoves));
  const auto moves_left = [&] { return best.moves < request.moves; };
  for (int i = 0; i < kSearchRounds && moves_left() && best.step_s > request.enough_s; ++i) {
    Schedule now = best.schedule;
    double now_s = best.step_s;
    const double before = best.step_s;
    int refused = 0;
    for (int64_t move = 0; move < round && moves_left();) {
      if (++refused > kMostRefused) break;
      std::vector<Block>& blocks = now.ranks[moves.below(now.ranks.size())];
      const std::vector<Block> kept = blocks;
      if (!moves.change(blocks) || !is_feasible(now, request)) {
        blocks = kept;
        continue;
      }
      refused = 0;
      ++move, ++best.moves;
      const double cooled = static_cast<double>(move) / static_cast<double>(round),
                   temperature = start_s * kHottest * std::pow(kColdest / kHottest, cooled),
                   seconds = request.step_seconds(now);
      if (seconds > now_s - temperature * std::log(moves.uniform())) {
        blocks = kept;
      } else {
        now_s = seconds;
        if (seconds < best.step_s * (1 - 1e-9)) best.schedule = now, best.step_s = seconds;
      }
      if (best.step_s <= request.enough_s) break;
      if (request.go_on && !request.go_on(best.moves, best.step_s)) {
        best.end = End::stopped;
        return best;
      }
    }
    if (best.step_s == before) return best;
  }
  best.end = best.step_s <= request.enough_s ? End::enough : End::moves;
  return best;
}

}  // namespace stp
