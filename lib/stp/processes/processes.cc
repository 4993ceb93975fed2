#include "stp/processes/processes.h"

#include <cstdint>
#include <utility>

namespace stp {

std::vector<std::string> Processes::gather(std::string text) { return {std::move(text)}; }

std::string Processes::broadcast(std::string text) { return text; }

std::vector<int> ranks_of_process(int world_size, int index, int count) {
  std::vector<int> ranks;
  for (int rank = 0; rank < world_size; ++rank)
    if (static_cast<int64_t>(rank) * count / world_size == index) ranks.push_back(rank);
  return ranks;
}

}  // namespace stp
