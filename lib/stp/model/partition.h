// The division of a model's layers over virtual stages, and the units of a stage's chunk.
#pragma once

#include <cstdint>
#include <vector>

#include "stp/model/unit.h"

namespace stp {

/// The paper's rule (section 5.1): all chunks have the same number of layers, but the last, which also has
/// the head, has two fewer. Throws InputError if (layers + 2) is not a multiple of the number of stages, or a
/// stage would have a negative number of layers.
std::vector<int> paper_partition(int layers, int stages);

/// Divides layers evenly; the first stages take the remainder, one layer each. Throws InputError if a stage
/// would have no layer.
std::vector<int> even_partition(int layers, int stages);

/// A unit of a chunk. `layer` counts within the chunk, or within its vision encoder; it is 0 for units
/// outside layers.
struct UnitOfChunk {
  Unit unit;
  int16_t layer;

  bool operator==(const UnitOfChunk&) const = default;
};

/// The units of a chunk besides its layers.
struct ChunkEnds {
  bool embedding = false, head = false;
  int vision_layers = 0;  // layers of the vision encoder before the embedding; 0: none
};

/// The units of a chunk of `layers` layers, in the order of the forward.
std::vector<UnitOfChunk> units_of_chunk(int layers, const ChunkEnds& ends);

}  // namespace stp
