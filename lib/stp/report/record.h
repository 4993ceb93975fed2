// The result record: what was run, where, by which program, and the results. Its JSON form is published as
// results/schema/record.schema.json; docs/metrics.md derives every quantity.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "stp/base/json_input.h"
#include "stp/model/strategy.h"

namespace stp {

/// How a number was obtained; a record has only one kind.
enum class Evidence { measured, replayed, emulated, simulated };
std::string to_string(Evidence evidence);

/// The configuration of one row. Unit-cost rows have no model, cluster or seq.
struct Configuration {
  std::string name;            // "" where the scenario gives none
  std::string model, cluster;  // "" where costs are given by a table
  int seq = 0;
  Strategy strategy;
  int microbatches = 1, microbatch_size = 1;
  std::vector<int> layers_per_chunk;  // by virtual stage
  std::string placement;
  SharedJson options;     // further fields of the row, as the scenario has them; null: none
  SharedJson unit_costs;  // the table that the costs came from; null for a model on a cluster

  [[nodiscard]] double samples() const { return double{1} * microbatches * microbatch_size * strategy.dp; }
};

struct RankResult {
  double compute_s, pp_bubble_s, tp_bubble_s;
  int peak_activation_chunks;
  // Bytes by kind; absent under unit costs.
  struct Memory {
    double activations, weights, gradients, optimizer;
    double host;         // host memory of offloaded tensors
    double buffers = 0;  // of communication, and working memory at the peak; with Transformer Engine
    double fixed = 0;    // context, communicators and workspaces

    [[nodiscard]] double on_device() const {
      return activations + weights + gradients + optimizer + buffers + fixed;
    }
  };
  std::optional<Memory> memory;
};

/// Errors against the plain reference: the relative difference of the loss, and the largest gradient error of
/// any tensor, ‖g − ref‖ / max(‖ref‖, 10⁻³ · the largest tensor's norm).
struct Parity {
  double loss, gradient;
  std::optional<double> one_rank_gradient;  // the same of one rank, by which it is judged
};

/// A hardware profile's prediction of a run's step.
struct Prediction {
  std::string cluster;
  double step_time_s;
  bool oversubscribed;      // more ranks than processors: ranks take turns
  int disturbed_steps = 0;  // timed while the machine was slow
};

/// A run of one rank alone, over emulated links of a cluster.
struct Replayed {
  int rank = 0;  // of the world
  std::string cluster;
  // Calls of the timed steps in groups of one kind: total and largest delay beyond the link's time, and the
  // bytes of the link buffers.
  struct Group {
    int64_t calls;
    double late_s, latest_s, link_bytes;
  };
  std::map<std::string, Group> groups;  // "tp", "dp", "pp", "model"
};

/// BLAS's share of the timed steps' compute time, mean over ranks, and its rate.
struct BlasShare {
  double share = 0, gflop_per_s = 0;
};

/// Further results of runs on devices; absent in simulations.
struct Measured {
  std::string backend, type;            // "cpu" or "cuda"; type of activations and weights
  std::optional<int> ranks_per_device;  // none if ranks share the machine's processors
  std::vector<double> losses;           // by step, with the warm-up; empty for replays
  std::optional<Parity> parity;
  std::optional<Prediction> predicted;
  std::optional<Replayed> replayed;
  std::optional<BlasShare> blas;  // if the backend counts it
  int processes = 1;              // of the run
  // Maximum over ranks: bytes that kernels need besides tensors. Minimum over ranks: the share of kernel
  // calls that were replayed as graphs (none: no graphs).
  double scratch_bytes = 0;
  std::optional<double> share_in_graphs;
  std::optional<double> kernel_time_s;  // of one step, if kernels were timed one by one
};

/// Whether a step fits into a simulated GPU's memory. `maybe`: within what is uncertain of fixed memory.
enum class Fit { yes, maybe, no };
std::string to_string(Fit fit);

/// One schedule in one configuration.
struct Result {
  std::string schedule;
  Configuration configuration;
  std::vector<double> step_times_s;  // all repeats
  std::optional<double> mfu, mfu_paper;
  std::optional<double> tp_communication_share;  // of one layer's forward, nothing overlapped
  std::optional<double> memory_margin_gb;        // simulated GPU minus peak_total_gb(); < 0: it runs out
  std::optional<Fit> fits;                       // into that GPU
  std::optional<double> lower_bound_s;           // simulations: no schedule's step is shorter (step_bound.h)
  std::optional<double> offload_ratio_bound;     // simulations: the share that a warm-up forward hides
  std::vector<RankResult> ranks;
  std::optional<Measured> measured;

  /// Median of the repeats.
  [[nodiscard]] double step_time_s() const;
  /// The share of its time by which the step is above its lower bound; none without one.
  [[nodiscard]] std::optional<double> gap() const;
  /// Samples per second; none if the step takes no time, or in replays.
  [[nodiscard]] std::optional<double> throughput() const;
  /// Its tokens per second and GPU; none without a model.
  [[nodiscard]] std::optional<double> tokens_per_s_per_gpu() const;
  /// The rank with the most compute time; `ranks` must not be empty.
  [[nodiscard]] const RankResult& busiest_rank() const;
  /// The busiest rank's idle time in the step: PP and TP bubble together.
  [[nodiscard]] double idle_s() const;
  /// Maximum number of (chunk, microbatch) activations alive on any rank.
  [[nodiscard]] int peak_activation_chunks() const;
  /// Largest activation memory of a rank, decimal GB. The paper's peak memory mostly counts this
  /// (docs/metrics.md).
  [[nodiscard]] std::optional<double> peak_memory_gb() const;
  /// Peak memory with weights, gradients and optimizer state.
  [[nodiscard]] std::optional<double> peak_total_gb() const;
};

nlohmann::json to_json(const Result& result);

/// The host of this program, with MLPerf's names if they exist.
nlohmann::json system_description();
/// `system` and `provenance` of a result: the machine, the program, and how the result was made.
nlohmann::json origin(const std::vector<std::string>& argv);

/// The record's frame: schema version, scenario as run, evidence, system and provenance; `rows_key`
/// ("results" or "rows") holds the rows.
nlohmann::json make_record(const nlohmann::json& scenario, Evidence evidence,
                           const std::vector<std::string>& argv, const std::string& rows_key,
                           nlohmann::json rows);

/// A record as text. Bytes that are not UTF-8 (of a command line, for example) are replaced.
std::string record_text(const nlohmann::json& record);

/// Writes `text` to `path` completely or not at all. Throws InputError if the file exists, unless it is a
/// character device such as /dev/null.
void write_new_file(const std::string& path, const std::string& text);

}  // namespace stp
