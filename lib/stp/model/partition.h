// How a model's layers are divided over the virtual stages, and the units of a stage's chunk.
#pragma once

#include <cstdint>
#include <vector>

#include "stp/model/unit.h"

namespace stp {

/// The paper's rule (section 5.1): all chunks have as many layers, but the last, which also has the head, has
/// two fewer. InputError if (layers + 2) is not a multiple of the number of stages, or a stage would have a
/// negative number of layers.
std::vector<int> paper_partition(int layers, int stages);

/// As even as possible: the first stages have one layer more than the others. InputError if a stage would
/// have none.
std::vector<int> even_partition(int layers, int stages);

/// A unit of a chunk; `layer` counts within the chunk, a vision encoder's within that; 0 for units of no
/// layer.
struct UnitOfChunk {
  Unit unit;
  int16_t layer;

  bool operator==(const UnitOfChunk&) const = default;
};

/// What a chunk has beside its layers.
struct ChunkEnds {
  bool embedding = false, head = false;
  int vision_layers = 0;  // of the vision encoder before the embedding; 0: none
};

/// The units of a chunk of `layers` layers, in the order of the forward.
std::vector<UnitOfChunk> units_of_chunk(int layers, const ChunkEnds& ends);

}  // namespace stp
