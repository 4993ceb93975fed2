#include "stp/processes/bootstrap.h"

#include <charconv>
#include <cstdlib>

#include "stp/base/error.h"

namespace stp {
namespace {

constexpr int kUsualPort = 29500;  // torchrun's

/// The variables of one launcher.
struct Launcher {
  const char* name;
  const char* there;  // is set where this launcher started the process
  const char *rank, *size, *local_rank;
  const char* here;  // a variable that equals `all` where all processes are on this node
  const char* all;   // the name of a variable, or a number
  const char* run;
};

constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE",
     "TORCHELASTIC_RUN_ID"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE"},
    // A batch script has a SLURM_PROCID of its own; only what srun started has a step.
    {"Slurm", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NNODES", "1",
     "SLURM_JOB_ID"},
};

int number(const std::string& name, const std::string& text, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    throw InputError(
        "", name, "\"" + text + "\" is no number of " + std::to_string(least) + " to " + std::to_string(most),
        "let the launcher set it, or set it so");
  return value;
}

int required(const Environment& environment, const Launcher& launcher, const char* name, int least,
             int most) {
  const auto text = environment(name);
  if (!text)
    throw InputError(
        "", name,
        std::string("is not set, but ") + launcher.there + " is: a launch by " + launcher.name + " has both",
        std::string("set both, or neither"));
  return number(name, *text, least, most);
}

std::string address(const Environment& environment, const Launcher& launcher) {
  if (auto given = environment("MASTER_ADDR"); given && !given->empty()) return *given;
  const auto here = environment(launcher.here);
  const auto all = environment(launcher.all).value_or(launcher.all);
  if (here && *here == all) return "127.0.0.1";
  throw InputError(
      "", "MASTER_ADDR",
      std::string("is not set, and ") + launcher.here + " does not say that all ranks are on one node",
      "set it to the host name of rank 0");
}

uint16_t port(const Environment& environment) {
  constexpr int kMost = 65535;
  if (const auto own = environment("STP_MASTER_PORT"))
    return static_cast<uint16_t>(number("STP_MASTER_PORT", *own, 1, kMost));
  const auto given = environment("MASTER_PORT");
  const int at = given ? number("MASTER_PORT", *given, 1, kMost) : kUsualPort;
  const bool taken = environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  return static_cast<uint16_t>(taken ? (at < kMost ? at + 1 : at - 1) : at);
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): nothing here sets any
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

std::optional<ProcessPlace> place_from_environment(const Environment& environment) {
  constexpr int kMostRanks = 1 << 20;
  for (const Launcher& launcher : kLaunchers) {
    if (!environment(launcher.there)) continue;
    ProcessPlace place;
    place.world_size = required(environment, launcher, launcher.size, 1, kMostRanks);
    place.rank = required(environment, launcher, launcher.rank, 0, place.world_size - 1);
    place.local_rank = required(environment, launcher, launcher.local_rank, 0, place.world_size - 1);
    if (place.world_size > 1) place.address = address(environment, launcher);
    place.port = port(environment);
    place.run = environment(launcher.run).value_or("");
    return place;
  }
  return std::nullopt;
}

void check_world(int ranks, const ProcessPlace& place, const std::string& file, const std::string& field) {
  if (ranks != place.world_size)
    throw InputError(file, field,
                     "has " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") +
                         ", but the launcher started " + std::to_string(place.world_size) + " processes",
                     "start one for each rank");
}

}  // namespace stp
