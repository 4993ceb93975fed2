// The result record: what was run, where, by which program, and what came out. Its JSON form is published as
// results/schema/record.schema.json; docs/metrics.md derives every quantity.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "stp/base/json_input.h"

namespace stp {

/// How a number came about; levels are never mixed in one record.
enum class Evidence { measured, replayed, emulated, simulated, published };
std::string to_string(Evidence evidence);

/// The configuration of one row. Unit-cost rows have neither model, cluster nor seq.
struct Configuration {
  std::string model, cluster;  // "" where costs are given by a table
  int seq = 0;
  int tp = 1, pp = 1, cp = 1, dp = 1;
  int microbatches = 1, microbatch_size = 1;
  std::vector<int> layers_per_chunk;  // by virtual stage
  std::string placement, release, backward, braid, freed_at;
  std::string recompute;                  // "" where costs are given by a table
  std::optional<bool> sequence_parallel;  // none there
  std::optional<bool> contention;         // none there
  SharedJson unit_costs;                  // the table that the costs came from; null for a model on a cluster

  [[nodiscard]] int gpus() const { return tp * pp * cp * dp; }
  [[nodiscard]] double samples() const { return double{1} * microbatches * microbatch_size * dp; }
};

struct RankResult {
  double compute_s, pp_bubble_s, tp_bubble_s;
  int peak_activation_chunks;
  // Bytes by kind; absent under unit costs.
  struct Memory {
    double activations, weights, gradients, optimizer;
  };
  std::optional<Memory> memory;
};

/// Against the plain reference: the relative difference of the loss, and the largest of any gradient
/// tensor's, ‖g − ref‖ / max(‖ref‖, 10⁻³ · the largest tensor's norm).
struct Parity {
  double loss, gradient;
  std::optional<double> one_rank_gradient;  // bf16: the same of one rank, by which `gradient` is judged
};

/// What a hardware profile foretold of a run's step.
struct Prediction {
  std::string cluster;
  double step_time_s;
  bool oversubscribed;      // more ranks than processors, which take turns
  int disturbed_steps = 0;  // that were timed while the machine was slower than usual
};

/// A run of one rank alone, among peers at the pace of a cluster's links.
struct Replayed {
  int rank = 0;  // of the world
  std::string cluster;
  // Of the timed steps' calls in groups of one kind: by how much they took longer than their pace, all
  // together and the worst one; and the buffers that stood for the links.
  struct Group {
    int64_t calls;
    double late_s, latest_s, link_bytes;
  };
  std::map<std::string, Group> groups;  // "tp", "dp", "pp", "model"
};

/// Of the timed steps' compute time, mean over ranks, what BLAS took, and its rate there.
struct BlasShare {
  double share = 0, gflop_per_s = 0;
};

/// What a run on devices knows besides; absent where nothing ran.
struct Measured {
  std::string backend, type;            // "cpu" or "cuda"; of activations and weights
  std::optional<int> ranks_per_device;  // none where ranks share the machine's processors
  std::vector<double> losses;           // by step, warm-up included; none of a replay
  std::optional<Parity> parity;
  std::optional<Prediction> predicted;
  std::optional<Replayed> replayed;
  std::optional<BlasShare> blas;  // where the backend counts it
  int processes = 1;              // that the run was made of
  // Of the rank that has most, respectively least: bytes that kernels needed beside all tensors, and the
  // share of their calls that were replayed as graphs (none: there were no graphs).
  double scratch_bytes = 0;
  std::optional<double> share_in_graphs;
  std::optional<double> kernel_time_s;  // of a step, where kernels were timed one by one
};

/// One schedule in one configuration.
struct Result {
  std::string schedule;
  Configuration configuration;
  std::vector<double> step_times_s;  // all repeats
  std::optional<double> mfu, mfu_paper;
  std::optional<double> tp_communication_share;  // of one layer's forward, nothing overlapped
  std::vector<RankResult> ranks;
  std::optional<Measured> measured;

  /// Median of the repeats.
  [[nodiscard]] double step_time_s() const;
  /// Samples per second; none if the step takes no time, or is that of one rank alone.
  [[nodiscard]] std::optional<double> throughput() const;
  /// The rank that computes most, which sets the pace; there is one.
  [[nodiscard]] const RankResult& busiest_rank() const;
  /// What the rank that computes most does not compute of the step: PP and TP bubble together.
  [[nodiscard]] double idle_s() const;
  /// Most (chunk, microbatch) activations alive on any rank.
  [[nodiscard]] int peak_activation_chunks() const;
  /// Largest activation memory of a rank, decimal GB: what the paper's peak memory mostly counts
  /// (docs/metrics.md).
  [[nodiscard]] std::optional<double> peak_memory_gb() const;
};

nlohmann::json to_json(const Result& result);

/// The host that this program runs on, by MLPerf's names for what it names.
nlohmann::json system_description();
/// Where, by which program and how a result was made: `system` and `provenance`, as every result has them.
nlohmann::json origin(const std::vector<std::string>& argv);

/// The record's frame: schema version, scenario as run, evidence, system and provenance; `rows_key`
/// ("results" or "rows") holds the rows.
nlohmann::json make_record(const nlohmann::json& scenario, Evidence evidence,
                           const std::vector<std::string>& argv, const std::string& rows_key,
                           nlohmann::json rows);

/// A record as it is written. Bytes that are not UTF-8 (of a command line, say) are replaced.
std::string record_text(const nlohmann::json& record);

/// Writes `text` to `path` whole or not at all; refuses (InputError) a file that exists, but for a character
/// device such as /dev/null, which it writes to.
void write_new_file(const std::string& path, const std::string& text);

}  // namespace stp
