#include "stp/processes/processes.h"

#include <charconv>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "stp/base/error.h"
#include "stp/processes/tcp_processes.h"

namespace stp {

/// Initialises MPI. Throws InputError if MPI has not `count` processes, or this build has no MPI.
std::unique_ptr<Processes> join_by_mpi(int count, double deadline_s);
#ifndef STP_HAVE_MPI
std::unique_ptr<Processes> join_by_mpi(int count, double) {
  throw InputError(
      "", "launcher",
      "started " + std::to_string(count) + " processes, and this build has no MPI to join them",
      "build where MPI is found (-D STP_MPI=ON), start them with torchrun, or start one process");
}
#endif

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

std::vector<uint64_t> Processes::number_exchange(const std::vector<int>& among) {
  if (count() == 1) throw std::logic_error("one process exchanges no data");
  exchanges_.resize(count());
  std::vector<uint64_t> numbers = exchanges_;
  for (const int process : among) ++exchanges_[process];
  return numbers;
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

std::unique_ptr<Pending> Processes::start(const std::vector<uint64_t>&, uint64_t, std::span<const Message>,
                                          std::span<const Message>) {
  throw std::logic_error("one process exchanges no data");
}

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

const char* variable(const char* name) {
  return std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets any
}

int number_in(const char* name, int least, int most, const char* what) {
  const std::string text = variable(name);
  int number = 0;
  const char* const end = text.data() + text.size();
  if (const auto [at, error] = std::from_chars(text.data(), end, number);
      error != std::errc() || at != end || number < least || number > most)
    throw InputError("", name, "\"" + text + "\" is not " + what, "let the launcher set it, or unset it");
  return number;
}

/// Which variable says how many processes the launcher started; null if none does. torchrun's comes last: it
/// may be left from a shell around mpirun.
const char* name_of_count() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE", "SLURM_STEP_NUM_TASKS"})
    if (variable(name) != nullptr) return name;
  return nullptr;
}

/// As torchrun tells its processes. Its agent has the port itself, if that variable says so.
Rendezvous rendezvous(int count) {
  Rendezvous all{variable("MASTER_ADDR"), number_in("MASTER_PORT", 1, 65534, "a port"), 0, count, 0};
  const char* const agent = variable("TORCHELASTIC_USE_AGENT_STORE");
  if (agent != nullptr && std::string(agent) == "True") ++all.port;
  all.index = number_in("RANK", 0, count - 1, "the number of one of WORLD_SIZE processes, from 0");
  all.index_on_node =
      variable("LOCAL_RANK") == nullptr ? all.index : number_in("LOCAL_RANK", 0, all.index, "at most RANK");
  return all;
}

}  // namespace

std::unique_ptr<Processes> join_processes(double deadline_s) {
  const char* const name = name_of_count();
  const int count = name == nullptr ? 1 : number_in(name, 1, INT_MAX, "a number of processes");
  if (count == 1) return std::make_unique<Processes>();
  const bool meet = std::string(name) == "WORLD_SIZE" && variable("RANK") != nullptr &&
                    variable("MASTER_ADDR") != nullptr && variable("MASTER_PORT") != nullptr;
  return meet ? join_by_tcp(rendezvous(count), deadline_s) : join_by_mpi(count, deadline_s);
}

}  // namespace stp
