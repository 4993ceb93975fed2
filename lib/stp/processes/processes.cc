#include "stp/processes/processes.h"

#include <cstdint>
#include <stdexcept>
#include <utility>

namespace stp {

std::vector<std::string> Processes::gather(std::string text) {
  if (!is_root()) {
    send(0, text);
    return {};
  }
  std::vector<std::string> texts{std::move(text)};
  for (int from = 1; from < count(); ++from) texts.push_back(receive(from));
  return texts;
}

std::string Processes::broadcast(std::string text) {
  std::vector<int> all;
  for (int process = 0; process < count(); ++process) all.push_back(process);
  return broadcast(std::move(text), all);
}

std::string Processes::broadcast(std::string text, const std::vector<int>& among) {
  if (index() != among.front()) return receive(among.front());
  for (const int to : among)
    if (to != index()) send(to, text);
  return text;
}

void Processes::send(int, const std::string&) { throw std::logic_error("one process has no other"); }

std::string Processes::receive(int) { throw std::logic_error("one process has no other"); }

std::vector<int> ranks_of_process(int world_size, int index, int count) {
  std::vector<int> ranks;
  for (int rank = 0; rank < world_size; ++rank)
    if (static_cast<int64_t>(rank) * count / world_size == index) ranks.push_back(rank);
  return ranks;
}

}  // namespace stp
