#include "stp/schedule/schedule.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "stp/base/json_input.h"

namespace stp {
namespace {

using nlohmann::json;

bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; }

// A schedule's name goes into tables, records and the text form: one line, without blanks around it.
void check_name(const std::string& name) {
  if (name.empty() || name.front() == ' ' || name.back() == ' ' ||
      std::any_of(name.begin(), name.end(), is_control) || valid_utf8(name) != name)
    throw InputError("", "schedule", "is not a name",
                     "write some words on one line, without blanks around them");
}

json placement_to_json(const Placement& placement) {
  if (placement.name() != "table") return placement.name();
  json rows = json::array();
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    json row = json::array();
    for (int chunk = 0; chunk < placement.chunks(); ++chunk) row.push_back(placement.stage(rank, chunk));
    rows.push_back(std::move(row));
  }
  return rows;
}

// The placement of `pp` ranks and `chunks` chunks given by `value`, a name or a table.
Placement placement_from_json(const json& value, int pp, int chunks) {
  if (value.is_string()) return Placement::named(value.get<std::string>(), pp, chunks);
  const auto refuse = [](const std::string& field, const std::string& problem) {
    throw InputError(
        "", "placement" + field, problem,
        "write loop, v, wave, bidirectional, or an array per rank of its chunks' virtual stages");
  };
  if (!value.is_array()) refuse("", "is neither a name nor a table");
  if (value.size() != static_cast<size_t>(pp))
    refuse("", "has " + std::to_string(value.size()) + " rows for " + std::to_string(pp) + " ranks");
  std::vector<std::vector<int>> rows(value.size());
  for (size_t rank = 0; rank < value.size(); ++rank) {
    const std::string row = "[" + std::to_string(rank) + "]";
    if (!value[rank].is_array()) refuse(row, "is not an array");
    if (value[rank].size() != static_cast<size_t>(chunks))
      refuse(row, "has " + std::to_string(value[rank].size()) + " entries for " + counted(chunks, "chunk"));
    for (size_t chunk = 0; chunk < value[rank].size(); ++chunk) {
      const json& stage = value[rank][chunk];
      const bool fits = stage.is_number_integer() && stage >= 0 && stage <= kMaxRanks * kMaxChunks;
      if (!fits)
        refuse(row + "[" + std::to_string(chunk) + "]", json_text(stage) + " is not a virtual stage");
      rows[rank].push_back(stage.get<int>());
    }
  }
  return Placement::table(rows);
}

}  // namespace

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
    throw InputError("", "microbatches",
                     "pp · chunks · microbatches is more than " + std::to_string(kMaxChunkPasses),
                     "use fewer microbatches or ranks");
}

json to_json(const Schedule& schedule) {
  auto ranks = json::array();
  for (const auto& blocks : schedule.ranks) {
    auto row = json::array();
    for (const Block& block : blocks) row.push_back(to_string(block));
    ranks.push_back(std::move(row));
  }
  return {{"schedule", schedule.name},
          {"placement", placement_to_json(schedule.placement)},
          {"pp", schedule.pp()},
          {"chunks", schedule.chunks()},
          {"microbatches", schedule.all_microbatches()},
          {"ranks", std::move(ranks)}};
}

Schedule schedule_from_json(const json& value, const std::string& file) {
  JsonInput input(value, file);
  const std::string name = input.string("schedule");
  const json& placement = input.value("placement");
  const int pp = input.integer("pp", 1, kMaxRanks);
  const int chunks = input.integer("chunks", 1, kMaxChunks);
  const int microbatches = input.integer("microbatches", 1, kMaxMicrobatches);
  const json& ranks = input.array("ranks");
  input.done();
  try {
    check_name(name);
    check_size(pp, chunks, microbatches);
    Schedule schedule{name, placement_from_json(placement, pp, chunks), microbatches, {}};
    if (microbatches % schedule.placement.pipelines() != 0)
      throw InputError("", "microbatches", "is odd, and two pipelines share them", "write an even number");
    schedule.microbatches /= schedule.placement.pipelines();
    if (static_cast<int>(ranks.size()) != pp)
      throw InputError("", "ranks",
                       "has " + std::to_string(ranks.size()) + " lists for " + std::to_string(pp) + " ranks",
                       "write one list of blocks per rank");
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const std::string field = "ranks[" + std::to_string(rank) + "]";
      if (!ranks[rank].is_array())
        throw InputError(file, field, "must be an array of blocks", "write [\"F0.0\", …]");
      std::vector<Block> blocks;
      for (size_t i = 0; i < ranks[rank].size(); ++i) {
        const std::string place = field + "[" + std::to_string(i) + "]";
        if (!ranks[rank][i].is_string())
          throw InputError(file, place, "must be a string", "write a block such as \"F0.3\"");
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

std::string to_text(const Schedule& schedule) {
  const json placement = placement_to_json(schedule.placement);
  std::string text = "# schedule " + schedule.name + ", placement " +
                     (placement.is_string() ? schedule.placement.name() : json_text(placement)) + "\n";
  for (const auto& blocks : schedule.ranks) {
    for (size_t i = 0; i < blocks.size(); ++i) text += (i == 0 ? "" : " ") + to_string(blocks[i]);
    text += "\n";
  }
  return text;
}

namespace {

// The contents of the first line of a text.
struct TextHeader {
  std::optional<std::string> name, placement;
};

TextHeader parse_text_header(std::string_view line) {
  constexpr std::string_view kSchedule = "# schedule ", kPlacement = "# placement ", kBoth = ", placement ";
  if (line.starts_with(kPlacement)) return {std::nullopt, std::string(line.substr(kPlacement.size()))};
  const size_t comma = line.rfind(kBoth);
  if (!line.starts_with(kSchedule) || comma == std::string_view::npos || comma < kSchedule.size())
    throw InputError("", "line 1", "is not a heading",
                     "write \"# schedule NAME, placement P\" or \"# placement P\"");
  return {std::string(line.substr(kSchedule.size(), comma - kSchedule.size())),
          std::string(line.substr(comma + kBoth.size()))};
}

std::vector<Block> parse_text_line(std::string_view line, const std::string& place) {
  constexpr std::string_view kBlanks = " \t";
  std::vector<Block> blocks;
  while (true) {
    const size_t begin = line.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) break;
    line.remove_prefix(begin);
    const size_t end = std::min(line.find_first_of(kBlanks), line.size());
    try {
      blocks.push_back(parse_block(line.substr(0, end)));
    } catch (const InputError& error) {
      throw error.in_field(place + ", block " + std::to_string(blocks.size()));
    }
    line.remove_prefix(end);
  }
  if (blocks.empty())
    throw InputError("", place, "has no blocks", "write a line per rank, and no other lines");
  return blocks;
}

Placement placement_of_text(const std::optional<std::string>& said, int pp, int chunks,
                            const std::string& file) {
  if (said)
    return placement_from_json(said->starts_with('[') ? parse_json(*said, file) : json(*said), pp, chunks);
  if (pp == 1 || chunks == 1) return Placement::loop(pp, chunks);
  throw InputError("", "line 1",
                   "no placement is given, and " + std::to_string(pp) + " ranks of " +
                       std::to_string(chunks) + " chunks have more than one",
                   "begin with a line such as \"# placement v\" or \"# placement loop\"");
}

}  // namespace

Schedule schedule_from_text(const std::string& text, const std::string& file) {
  try {
    TextHeader header;
    std::vector<std::vector<Block>> ranks;
    std::string_view rest = text;
    for (int number = 1; !rest.empty(); ++number) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (number == 1 && line.starts_with('#')) {
        header = parse_text_header(line);
        continue;
      }
      const std::string place =
          "line " + std::to_string(number) + " (rank " + std::to_string(ranks.size()) + ")";
      ranks.push_back(parse_text_line(line, place));
      if (ranks.size() > kMaxRanks)
        throw InputError("", place, "is one rank too many", "use at most " + std::to_string(kMaxRanks));
    }
    if (ranks.empty()) throw InputError("", "", "has no ranks", "write a line of blocks per rank");
    int64_t chunks = 0, microbatches = 0;
    for (const auto& blocks : ranks) {
      for (const Block& block : blocks) {
        for (const Action& action : block.actions()) {
          chunks = std::max(chunks, int64_t{action.chunk} + 1);
          microbatches = std::max(microbatches, int64_t{action.microbatch} + 1);
        }
      }
    }
    const int pp = static_cast<int>(ranks.size());
    const int v = static_cast<int>(chunks), m = static_cast<int>(std::min<int64_t>(microbatches, INT32_MAX));
    check_size(pp, v, m);
    const std::string name = header.name.value_or(schedule_name_of(file));
    check_name(name);
    return {name, placement_of_text(header.placement, pp, v, file), m, std::move(ranks)};
  } catch (const InputError& error) {
    throw error.in_file(file);
  }
}

std::string schedule_name_of(const std::string& file) {
  // Names go into JSON and tables: bytes that are not UTF-8 and control characters are replaced.
  std::string name = valid_utf8(std::filesystem::path(file).stem().string());
  std::replace_if(name.begin(), name.end(), is_control, '_');
  const size_t begin = name.find_first_not_of(' ');
  if (begin == std::string::npos) return "schedule";
  return name.substr(begin, name.find_last_not_of(' ') - begin + 1);
}

}  // namespace stp
