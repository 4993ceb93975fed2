// The commands of `stp`, and their options from the command line (command_line.cc).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend_commands.h"
#include "profile_simulation.h"
#include "run_measured.h"
#include "scenario.h"
#include "stp/schedule/generator.h"

namespace stp {

/// The exit code of a program that ends with `error`.
int exit_code_of(const std::exception& error);

// Output files: "" for none, "-" for standard output, which then holds nothing else.

/// How scenarios are read.
struct ScenarioOptions {
  std::vector<std::string> set;  // KEY=VALUE (changes.h)
  bool keep_going = false;       // leaves out invalid configurations

  [[nodiscard]] Invalid invalid() const { return keep_going ? Invalid::leave_out : Invalid::refuse; }
};

struct ReproduceOptions {
  ScenarioOptions reading;
  std::vector<std::string> scenarios;  // files or names; empty: the whole suite
  std::string out;                     // a folder; "": a new one below results/runs
  bool no_plots = false;
};
void reproduce_command(const ReproduceOptions& options, const Arguments& argv);

struct SimulateOptions {
  ScenarioOptions reading;
  std::string scenario, json, csv;
};
void simulate_command(const SimulateOptions& options, const Arguments& argv);

struct TuneOptions {
  std::vector<std::string> set;                        // KEY=VALUE
  std::string scenario, model, cluster, runs_on, out;  // "": none; out: a new folder below results/runs
  int gpus = 0, global_batch = 0, seq = 0;             // 0: of the scenario
  // Axes of the search; empty: all that is possible. `ranks`: by kAxes.
  std::array<std::vector<int>, std::size(kAxes)> ranks;
  std::vector<int> chunks, microbatch_size;
  std::vector<std::string> schedules, recompute, tp_overlap, layers, sequence_parallel;
  std::vector<double> offload;
  std::optional<double> band;  // per cent within which steps count as equal; none: from rows of this GPU
  bool exhaustive = false;     // simulates all that fits
};
void tune_command(const TuneOptions& options, const Arguments& argv);

struct RunOptions {
  std::vector<std::string> set;  // KEY=VALUE
  std::string scenario;
  std::string json, csv, trace;
  bool all_microbatches = false;  // in the trace
  std::string predict;            // a hardware profile; "": none
  DeviceOptions devices;
  double memory_limit_mib = 0;  // 0: none
  int replay_rank = -1;
  std::string replay_cluster;
  std::string inject;  // a fault (injected_fault.h); "": none
};

struct ScheduleOptions {
  std::string name, format = "text";
  GeneratorRequest request;
  std::vector<double> costs;  // F, I, W, p2p; empty: those of `request`
  std::string vocabulary;     // how all ranks share it; "": not
  bool table = false;
};
void schedule_command(const ScheduleOptions& options);

struct SearchOptions {
  std::vector<std::string> set;  // KEY=VALUE
  std::string scenario, out;
  int configuration = 1;
  std::string memory_limit;  // a number of activations, or "schedule:NAME"; "": none
  uint64_t seed = 1;
  int64_t moves = 0;  // 0: by the size of the Program
};
void search_command(const SearchOptions& options);

void validate_command(const std::string& file);

/// The kinds that `stp list` knows: "scenarios" and so on.
const std::vector<std::string>& listed_kinds();
/// A `kind` of "" lists these.
void list_command(const std::string& kind, bool names_only);

struct ImportOptions {
  std::string config, name, out = "-";
};
void import_command(const ImportOptions& options);

struct TraceOptions {
  std::vector<std::string> set;  // KEY=VALUE
  std::string scenario, schedule, out;
  int configuration = 1;
  bool all_microbatches = false;
};
void trace_command(const TraceOptions& options);

/// How long `stp microbench` takes without flags.
inline constexpr const char* kQuickTime = "one to three minutes on two cores";

struct MicrobenchOptions {
  std::string out;                 // a folder; "": a new one below results/runs
  std::vector<std::string> flags;  // of the benchmark program
};
/// Returns the exit code of the benchmark program, which prints why it is not 0.
int microbench_command(const MicrobenchOptions& options);

struct CompareOptions {
  std::vector<std::string> files;
  std::string json, plot;
  double least_difference = 5;  // per cent
  bool machines = false;        // compare profiles, not files
  bool details = false;         // of profiles: all tables
  ProfileSimulationOptions profiles{.profiles = {}, .scenarios = {"llm-a800", "llm-h20"}, .schedules = {}};
};
/// Returns the exit code of the Python program, which prints why it is not 0.
int compare_command(const CompareOptions& options, const Arguments& argv);

/// Unit costs to compare schedules and validate files: F = I = W = 1 per layer, half for attention and half
/// for MLP; with `all_reduces`, 0.25 of them per layer and direction.
CostTable reference_costs(bool all_reduces);

}  // namespace stp
