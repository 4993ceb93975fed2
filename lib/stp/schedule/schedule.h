// A schedule: which rank runs which pass of which microbatch, and in what order. It has compute actions only;
// lowering (lib/stp/program) adds communication and recomputation.
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
  int microbatches;                       // of each pipeline
  std::vector<std::vector<Block>> ranks;  // each rank's blocks, in issue order

  [[nodiscard]] int pp() const { return placement.ranks(); }
  [[nodiscard]] int chunks() const { return placement.chunks(); }
  [[nodiscard]] int all_microbatches() const { return microbatches * placement.pipelines(); }
};

/// Relative times of one chunk's passes and of a transfer between ranks, for cost-aware generators.
struct PassCosts {
  double F = 1, I = 1, W = 1, p2p = 0;
};

/// Upper limits of p, v, m and p·v·m; larger schedules would exceed memory.
inline constexpr int kMaxRanks = 4096;
inline constexpr int kMaxChunks = 64;
inline constexpr int kMaxMicrobatches = 1 << 20;
inline constexpr int kMaxChunkPasses = 1 << 25;

/// Throws InputError unless p, v and m are at least 1 and within these limits.
void check_size(int pp, int chunks, int microbatches);

/// {"schedule","placement","pp","chunks","microbatches","ranks":[["F0.0",…],…]}. `placement` is a name, or a
/// table with one array per rank: its chunks' virtual stages.
nlohmann::json to_json(const Schedule& schedule);
/// The inverse of to_json; errors name `file`. Checks only the form: validate() checks the order.
Schedule schedule_from_json(const nlohmann::json& value, const std::string& file);

/// A line `# schedule NAME, placement P` (P as in JSON), then one line per rank, with blanks between blocks.
std::string to_text(const Schedule& schedule);
/// The inverse of to_text, for complete schedules: the number of microbatches is the largest microbatch plus
/// 1. The first line may be only `# placement P`, or missing; the name is then the file's. Text without a
/// placement is refused unless it has one chunk or one rank, for which loop is the only placement.
Schedule schedule_from_text(const std::string& text, const std::string& file);

/// A schedule's default name: its file's name without folder and ending.
std::string schedule_name_of(const std::string& file);

}  // namespace stp
