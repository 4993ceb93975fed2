#include "injected_fault.h"

#include <sys/resource.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "stp/base/error.h"
#include "stp/base/json_input.h"

namespace stp {
namespace {

constexpr std::array kNames{"kill", "stall", "slow", "nan", "alloc", "disk"};

[[noreturn]] void refuse(const std::string& problem, const std::string& remedy) {
  throw InputError("", "--inject", problem, remedy);
}

// The first op of the fault's action on its rank.
OpId op_of(const Fault& fault, const Program& program, const RankGrid& grid) {
  if (fault.rank >= grid.size())
    refuse("is on rank " + std::to_string(fault.rank) + " of " + std::to_string(grid.size()),
           "use 0 to " + std::to_string(grid.size() - 1));
  const int pp = grid.place(fault.rank).pp;
  for (OpId id = program.rank_begin[pp]; id < program.rank_begin[pp + 1]; ++id) {
    const Op& op = program.ops[id];
    if (op.block >= 0 && program.stream_of(id).kind == StreamKind::compute &&
        to_string(Action{op.pass, op.chunk, op.microbatch}) == fault.action)
      return id;
  }
  refuse("names " + fault.action + ", which rank " + std::to_string(fault.rank) + " does not compute in " +
             program.schedule.name,
         "name one of the rank's, as stp schedule prints them");
}

void end_files() {
  const rlimit none{0, 0};
  std::signal(SIGXFSZ, SIG_IGN);  // writes fail instead
  setrlimit(RLIMIT_FSIZE, &none);
}

[[noreturn]] void stall(const RunGuard& guard) {
  for (;; std::this_thread::sleep_for(RunGuard::kPollInterval)) guard.check();
}

}  // namespace

Fault read_fault(const std::string& text) {
  const std::string form = "write KIND:RANK:ACTION, with KIND one of " +
                           joined(kNames, [](const char* name) { return std::string(name); }) +
                           ", such as kill:1:F0.3, or slow:RANK:ACTION:SECONDS";
  std::istringstream words(text);
  std::string kind, rank, seconds;
  Fault fault{};
  std::getline(words, kind, ':');
  std::getline(words, rank, ':');
  std::getline(words, fault.action, ':');
  const bool slow = kind == kNames[static_cast<size_t>(FaultKind::slow)];
  const bool timed = static_cast<bool>(std::getline(words, seconds));
  size_t known = 0, read = 0;
  while (known < kNames.size() && kNames[known] != kind) ++known;
  if (known == kNames.size() || rank.empty() || rank.size() > 4 || fault.action.empty() || timed != slow ||
      rank.find_first_not_of("0123456789") != std::string::npos)
    refuse("\"" + text + "\" is not a fault", form);
  fault.kind = static_cast<FaultKind>(known);
  fault.rank = std::stoi(rank);
  if (!slow) return fault;
  try {
    fault.seconds = std::stod(seconds, &read);
  } catch (const std::logic_error&) {
    read = 0;
  }
  if (read == 0 || read != seconds.size() || !(fault.seconds >= 0 && fault.seconds <= 1e6))
    refuse("\"" + seconds + "\" is not a number of seconds", form);
  return fault;
}

OpHooks with_fault(OpHooks hooks, const Fault& fault, const Program& program, const RankGrid& grid) {
  const OpId op = op_of(fault, program, grid);
  const auto here = [rank = fault.rank, op](int of, uint32_t id) { return of == rank && id == op; };
  if (fault.kind == FaultKind::slow) {
    hooks.takes = [takes = hooks.takes, here, seconds = fault.seconds](int of, uint32_t id) {
      return (takes ? takes(of, id) : 0) + (here(of, id) ? seconds : 0);
    };
    return hooks;
  }
  const auto left = std::make_shared<std::atomic<int>>(1);  // faults to make
  const std::string words = "injected " + std::string(kNames[static_cast<size_t>(fault.kind)]) + " at rank " +
                            std::to_string(fault.rank) + ", " + describe_op(program, op);
  const auto happens = [here, left, words](int of, uint32_t id) {
    if (!here(of, id) || left->exchange(0) == 0) return false;
    std::fprintf(stderr, "stp: %s\n", words.c_str());
    return true;
  };
  if (fault.kind == FaultKind::alloc) {
    hooks.issue = [happens](int of, uint32_t id) {
      if (happens(of, id)) throw std::runtime_error("out of memory, as injected");
    };
  } else if (fault.kind == FaultKind::nan) {
    const auto armed = std::make_shared<bool>(false);
    hooks.issue = [happens, armed](int of, uint32_t id) { *armed = *armed || happens(of, id); };
    hooks.spoils = [armed, rank = fault.rank](int of) { return of == rank && std::exchange(*armed, false); };
  } else {
    hooks.start = [happens, kind = fault.kind](RunGuard& guard, int of, uint32_t id) {
      if (!happens(of, id)) return;
      if (kind == FaultKind::kill) std::raise(SIGKILL);
      if (kind == FaultKind::stall) stall(guard);
      end_files();
    };
  }
  return hooks;
}

void add_delay(const Fault& fault, const Program& program, const RankGrid& grid,
               std::vector<double>& seconds) {
  if (fault.kind == FaultKind::slow) seconds[op_of(fault, program, grid)] += fault.seconds;
}

}  // namespace stp
