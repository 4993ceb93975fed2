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

Placement Placement::named(const std::string& name, int ranks, int chunks) {
  if (name == "loop") return loop(ranks, chunks);
  if (name == "v") {
    if (chunks != 2)
      throw InputError("", "chunks", "placement v has two chunks a rank, not " + std::to_string(chunks), "set it to 2");
    return v(ranks);
  }
  throw InputError("", "placement", "\"" + name + "\" is not a placement", "use loop or v");
}

}  // namespace stp
