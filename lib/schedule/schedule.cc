#include "stp/schedule/schedule.h"

#include "stp/base/json_input.h"

namespace stp {

void check_size(int pp, int chunks, int microbatches) {
  const auto check = [](const char* field, int value, int limit) {
    if (value < 1 || value > limit)
      throw InputError("", field, std::to_string(value) + " is out of range",
                       "write a whole number from 1 to " + std::to_string(limit));
  };
  check("pp", pp, kMaxRanks);
  check("chunks", chunks, kMaxChunks);
  check("microbatches", microbatches, kMaxMicrobatches);
  if (int64_t{pp} * chunks * microbatches > kMaxChunkPasses)
    throw InputError("", "microbatches", "pp · chunks · microbatches is more than " + std::to_string(kMaxChunkPasses),
                     "use fewer microbatches or ranks");
}

nlohmann::json to_json(const Schedule& schedule) {
  auto ranks = nlohmann::json::array();
  for (const auto& blocks : schedule.ranks) {
    auto row = nlohmann::json::array();
    for (const Block& block : blocks) row.push_back(to_string(block));
    ranks.push_back(std::move(row));
  }
  return {{"schedule", schedule.name},
          {"placement", schedule.placement.name()},
          {"pp", schedule.pp()},
          {"chunks", schedule.chunks()},
          {"microbatches", schedule.microbatches},
          {"ranks", std::move(ranks)}};
}

std::string to_text(const Schedule& schedule) {
  std::string text;
  for (const auto& blocks : schedule.ranks) {
    for (size_t i = 0; i < blocks.size(); ++i) text += (i == 0 ? "" : " ") + to_string(blocks[i]);
    text += "\n";
  }
  return text;
}

Schedule schedule_from_json(const nlohmann::json& value, const std::string& file) {
  JsonInput input(value, file);
  const std::string name = input.string("schedule");
  const std::string placement = input.string("placement");
  const int pp = input.integer("pp", 1, kMaxRanks);
  const int chunks = input.integer("chunks", 1, kMaxChunks);
  const int microbatches = input.integer("microbatches", 1, kMaxMicrobatches);
  const nlohmann::json& ranks = input.array("ranks");
  input.done();
  try {
    check_size(pp, chunks, microbatches);
    Schedule schedule{name, Placement::named(placement, pp, chunks), microbatches, {}};
    if (static_cast<int>(ranks.size()) != pp)
      throw InputError("", "ranks", "has " + std::to_string(ranks.size()) + " lists for " + std::to_string(pp) + " ranks",
                       "write one list of blocks per rank");
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const std::string field = "ranks[" + std::to_string(rank) + "]";
      if (!ranks[rank].is_array()) throw InputError(file, field, "must be an array of blocks", "write [\"F0.0\", …]");
      std::vector<Block> blocks;
      for (size_t i = 0; i < ranks[rank].size(); ++i) {
        const std::string place = field + "[" + std::to_string(i) + "]";
        if (!ranks[rank][i].is_string()) throw InputError(file, place, "must be a string", "write a block such as \"F0.3\"");
        try {
          blocks.push_back(parse_block(ranks[rank][i].get_ref<const std::string&>()));
        } catch (const InputError& error) {
          throw error.in_field(place);
        }
      }
      schedule.ranks.push_back(std::move(blocks));
    }
    return schedule;
  } catch (const InputError& error) {
    throw error.in_file(file);
  }
}

}  // namespace stp
