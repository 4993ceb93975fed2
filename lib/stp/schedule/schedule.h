// A schedule: who does which pass of which microbatch, and in what order. Compute actions only;
// communication, recomputation and the like come by passes over the Program (lib/stp/program).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "stp/schedule/action.h"
#include "stp/schedule/placement.h"

namespace stp {

struct Schedule {
  std::string name;
  Placement placement;
  int microbatches;
  std::vector<std::vector<Block>> ranks;  // each rank's blocks, in the order in which they are issued

  [[nodiscard]] int pp() const { return placement.ranks(); }
  [[nodiscard]] int chunks() const { return placement.chunks(); }
};

/// What a cost-aware generator is told: relative times of one chunk's passes and of a hop between ranks.
struct PassCosts {
  double F = 1, I = 1, W = 1, p2p = 0;
};

/// Largest p, v and m, and the largest p·v·m, that anything here accepts: beyond them memory would run out
/// before a result came.
inline constexpr int kMaxRanks = 4096;
inline constexpr int kMaxChunks = 64;
inline constexpr int kMaxMicrobatches = 1 << 20;
inline constexpr int kMaxChunkPasses = 1 << 25;

/// InputError unless p, v and m are at least 1 and within those limits.
void check_size(int pp, int chunks, int microbatches);

/// {"schedule","placement","pp","chunks","microbatches","ranks":[["F0.0",…],…]}; `placement` is its name, or,
/// where it has none, its table: an array per rank of its chunks' virtual stages.
nlohmann::json to_json(const Schedule& schedule);
/// The inverse of to_json; `file` is named in errors. Form only: validate() judges the order.
/// Golden orders (tests/golden) are read too: `p`, `v`, `m` in place of `pp`, `chunks`, `microbatches`, and
/// their `origin`, `generated_for`, `match`, `makespan`, `peak` and `w_queue` are passed over.
Schedule schedule_from_json(const nlohmann::json& value, const std::string& file);

/// A line `# schedule NAME, placement P` (P as in JSON), then the ranks, one line each, blocks separated by
/// blanks.
std::string to_text(const Schedule& schedule);
/// The inverse of to_text, for schedules that are complete: the number of microbatches is that of the
/// largest, plus 1. The first line may be `# placement P` alone, or missing: the name is then the file's.
/// Without a placement it is the loop where that is the only one there is, with one chunk or one rank; else
/// the text is refused.
Schedule schedule_from_text(const std::string& text, const std::string& file);

/// The name of a schedule that its file does not name: the file's, without folder and ending.
std::string schedule_name_of(const std::string& file);

}  // namespace stp
