#include "stp/schedule/placement.h"

#include "stp/base/error.h"

namespace stp {

template <typename StageOf>
Placement::Placement(std::string name, int ranks, int chunks, StageOf stage_of)
    : name_(std::move(name)), ranks_(ranks), chunks_(chunks), stage_(ranks * chunks), place_(ranks * chunks) {
  for (int rank = 0; rank < ranks; ++rank) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int place = rank * chunks + chunk;
      stage_[place] = stage_of(rank, chunk);
      place_[stage_[place]] = place;
    }
  }
}

Placement Placement::loop(int ranks, int chunks) {
  return {"loop", ranks, chunks, [=](int rank, int chunk) { return chunk * ranks + rank; }};
}

Placement Placement::v(int ranks) {
  return {"v", ranks, 2, [=](int rank, int chunk) { return chunk == 0 ? rank : 2 * ranks - 1 - rank; }};
}

Placement Placement::bidirectional(int ranks) {
  Placement placement = v(ranks);
  placement.name_ = "bidirectional";
  placement.pipelines_ = 2;
  return placement;
}

Placement Placement::wave(int ranks, int chunks) {
  if (chunks == 1) return loop(ranks, chunks);
  if (chunks == 2) return v(ranks);
  return {"wave", ranks, chunks, [=](int rank, int chunk) {
            return chunk % 2 == 0 ? chunk * ranks + rank : (chunk + 1) * ranks - 1 - rank;
          }};
}

Placement Placement::table(const std::vector<std::vector<int>>& rows) {
  const auto refuse = [](const std::string& field, const std::string& problem, const std::string& remedy) {
    throw InputError("", "placement" + field, problem, remedy);
  };
  const auto at = [](size_t index) { return "[" + std::to_string(index) + "]"; };
  if (rows.empty() || rows[0].empty())
    refuse("", "has no virtual stages", "write one array per rank, of its chunks' virtual stages");
  const size_t stages = rows.size() * rows[0].size();
  const std::string range =
      "number the virtual stages from 0 to " + std::to_string(stages - 1) + ", each once";
  std::vector<int> owner(stages, -1);
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    if (rows[rank].size() != rows[0].size())
      refuse(at(rank),
             "rank " + std::to_string(rank) + " has " + counted(rows[rank].size(), "chunk") +
                 ", rank 0 has " + std::to_string(rows[0].size()),
             "give every rank the same number");
    for (size_t chunk = 0; chunk < rows[rank].size(); ++chunk) {
      const int stage = rows[rank][chunk];
      const std::string place = at(rank) + at(chunk);
      if (stage < 0 || stage >= static_cast<int>(stages))
        refuse(place, "there is no virtual stage " + std::to_string(stage), range);
      if (owner[stage] >= 0)
        refuse(place,
               "virtual stage " + std::to_string(stage) + " is on rank " + std::to_string(owner[stage]) +
                   " already",
               range);
      owner[stage] = static_cast<int>(rank);
    }
  }
  const int ranks = static_cast<int>(rows.size()), chunks = static_cast<int>(rows[0].size());
  Placement found("table", ranks, chunks, [&](int rank, int chunk) { return rows[rank][chunk]; });
  for (const Placement& known : {loop(ranks, chunks), wave(ranks, chunks)})
    if (known == found) return known;
  return found;
}

Placement Placement::named(const std::string& name, int ranks, int chunks) {
  if (name == "loop") return loop(ranks, chunks);
  if (name == "wave") return wave(ranks, chunks);
  if (name == "v" || name == "bidirectional") {
    if (chunks != 2)
      throw InputError("", "chunks",
                       "placement " + name + " has two chunks a rank, not " + std::to_string(chunks),
                       "set it to 2, or use wave");
    if (name == "v") return v(ranks);
    if (ranks % 2 != 0)
      throw InputError(
          "", "pp", "placement bidirectional mirrors an even number of ranks, not " + std::to_string(ranks),
          "use another number, or v");
    return bidirectional(ranks);
  }
  throw InputError(
      "", "placement", "\"" + name + "\" is not a placement",
      "use loop, v, wave, bidirectional, or a table: an array per rank of its chunks' virtual stages");
}

}  // namespace stp
