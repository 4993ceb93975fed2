#include "stp/processes/processes.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "stp/base/error.h"
#include "stp/processes/mpi_processes.h"

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

std::unique_ptr<Exchange> Processes::make_exchange(const std::vector<int>&) {
  throw std::logic_error("one process exchanges no data");
}

void Processes::report_failure(const std::string& why) const {
  const std::string who = count() == 1 ? "" : "process " + std::to_string(index()) + ": ";
  std::fprintf(stderr, "stp: %s%s\n", who.c_str(), why.c_str());
  std::fflush(nullptr);
}

void Processes::abort(const std::string& why, int code) {
  report_failure(why);
  std::_Exit(code);
}

void Processes::send(int, const std::string&) { throw std::logic_error("one process has no other"); }

std::string Processes::receive(int) { throw std::logic_error("one process has no other"); }

int process_of_rank(int rank, int world_size, int count) {
  return static_cast<int>(int64_t{rank} * count / world_size);
}

std::vector<int> ranks_of_process(int world_size, int index, int count) {
  std::vector<int> ranks;
  for (int rank = 0; rank < world_size; ++rank)
    if (process_of_rank(rank, world_size, count) == index) ranks.push_back(rank);
  return ranks;
}

// ---- how the process was started ----

namespace {

/// The number of processes that the launcher reports. It reads torchrun's WORLD_SIZE, too, so that torchrun's
/// processes do not count as separate runs.
int launched_processes() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* const text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets any
    if (text == nullptr) continue;
    int count = 0;
    const char* const end = text + std::strlen(text);
    if (const auto [at, error] = std::from_chars(text, end, count);
        error != std::errc() || at != end || count < 1)
      throw InputError("", name, "\"" + std::string(text) + "\" is not a number of processes",
                       "let the launcher set it, or unset it");
    return count;
  }
  return 1;
}

}  // namespace

std::unique_ptr<Processes> join_processes(double deadline_s) {
  const int count = launched_processes();
  return count == 1 ? std::make_unique<Processes>() : join_by_mpi(count, deadline_s);
}

}  // namespace stp
