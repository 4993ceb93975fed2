// A scenario file: which schedules, of which model on which cluster (or at which unit costs), in which
// configurations. docs/scenarios.md lists every field. A new experiment is one such file.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "changes.h"
#include "stp/base/json_input.h"
#include "stp/cluster/profile.h"
#include "stp/cost/cost_table.h"
#include "stp/cost/hardware.h"
#include "stp/device/element_type.h"
#include "stp/device/kernel_arguments.h"
#include "stp/model/hugging_face.h"
#include "stp/model/parameters.h"
#include "stp/program/lower.h"
#include "stp/report/compare.h"
#include "stp/schedule/generator.h"

namespace stp {

/// What ends an activation in counts and limits of activations: W, I, or both, each its part of the bytes;
/// the count of a schedule's peak is then that of W.
enum class FreedAt { W, I, both };

/// An entry of `schedules`: a generator by name, or a schedule file.
struct ScheduleChoice {
  std::string name;                           // "" for a file
  std::string file;                           // "" for a generator
  GeneratorOptions options;                   // for a generator
  Vocabulary vocabulary = Vocabulary::whole;  // that ranks are made to share
  bool operator==(const ScheduleChoice&) const = default;
};
/// The generator's name, or the file's name without folder and ending; and the method of sharing, as
/// share_vocabulary() adds it.
std::string name_of(const ScheduleChoice& choice);

/// A model or a cluster: its name in the scenario, its file, and the file's content.
struct NamedData {
  std::string name, path;
  SharedJson content;
  ImportedModel import;  // of a config.json; else empty
};

/// The division of a model's layers if no numbers are given: evenly, by the paper's rule, or `balanced` by
/// the configuration's own costs.
enum class LayerSplit { even, paper, balanced };

/// A model and its samples.
struct SampledModel {
  ModelConfig model;
  NamedData model_data;
  int seq = 0;
  int vision_tokens = 0;  // 0 without a vision encoder
};

/// One configuration, with all defaults filled in.
struct Experiment {
  std::string field;  // its place in its file, for errors
  std::string name;   // "" where it has none
  std::vector<ScheduleChoice> schedules;
  SharedJson schedules_as_read;
  Strategy
      strategy;  // sequence parallelism, recomputation and tp_overlap only for models, not for unit costs
  int microbatches = 1, microbatch_size = 1;
  bool of_global_batch = false;       // whether the file has global_batch, not microbatches
  int chunks = 0;                     // 0: each schedule's own
  std::vector<int> layers_per_chunk;  // empty: as `split` says
  LayerSplit split = LayerSplit::even;
  Release release = Release::chain;
  BackwardOrder backward = BackwardOrder::suite;
  BraidPolicy braid = BraidPolicy::static_merge;
  bool merge_backward = false;  // whether adjacent I and W run as one B
  FreedAt freed_at = FreedAt::W;
  // Factors of the time of each layer's compute, and of all that is done for a microbatch; empty: all 1.
  std::vector<double> layer_costs, microbatch_costs;
  std::optional<PassCosts>
      schedule_costs;  // none: unit costs 1, 1, 1, 0; with hardware, those of the cost model

  // Either a table of unit costs, or a model on a cluster.
  std::optional<CostTable> unit_costs;
  SharedJson unit_costs_as_read;
  struct Hardware : SampledModel {
    HardwareProfile profile;
    Implementation implementation;
    bool contention;
    bool scatter_transfers, sends_share_adapter;
    bool model_gradients;  // in the model's type, not in float32
    Recipe recipe;
    NamedData cluster_data;
    SharedJson cluster_values;  // the profile's values that this configuration replaces; null: none
  };
  std::optional<Hardware> hardware;

  // Or a model that is trained on devices (`stp run`).
  struct Run : SampledModel {
    DType type;
    int steps, warmup;  // timed steps, and those before them
    std::string text;   // file whose bytes are the data; "": random tokens
    Initialisation initialisation;
    AdamW optimizer;
    double clip_norm;
    bool parity;        // whether the first step is checked against the reference
    bool skip_refused;  // whether a schedule that refuses a configuration is left out
  };
  std::optional<Run> run;
};
/// The model, on hardware or in a run; null with unit costs alone.
const SampledModel* model_of(const Experiment& experiment);
/// The model's layers, or with unit costs the number of `layer_costs`; 0 if neither is given.
int model_layers(const Experiment& experiment);
/// The configuration as run, in a scenario's format, with all defaults filled in.
nlohmann::json to_json(const Experiment& experiment);
/// Those of its options that rows of records have, too, under the same names.
nlohmann::json options_json(const Experiment& experiment);

/// The treatment of an invalid configuration: refuse the scenario, or, if other configurations are valid,
/// leave this one out and print the reason on standard error.
enum class Invalid { refuse, leave_out };

struct Scenario {
  std::string file, name, title;
  std::vector<Experiment> experiments;
  std::optional<Comparison> comparison;
  bool timeline = false;  // whether `reproduce` draws its timelines
  Invalid invalid = Invalid::refuse;

  /// Rows of the result record: one per experiment and schedule.
  [[nodiscard]] size_t rows() const;

  /// The scenario as run, for the result record.
  [[nodiscard]] nlohmann::json as_run() const;
};

/// Prints on standard error that a configuration ("" if it has no name) is left out.
void say_left_out(const std::string& name, const InputError& error);

/// The file of `word`: a path, or the name of a scenario in the suite.
std::string scenario_path(const std::string& word);
/// Reads the file in field `key`, given by path or by name in the suite's `folder`, and applies `changes`.
/// The scenario of a record has its content itself, in `models` or `clusters`.
NamedData read_named_data(JsonInput& input, const char* key, const char* folder, const Changes& changes = {});
/// Reads the scenario's field `name`, which names results.
std::string read_scenario_name(JsonInput& input);
/// Reads its field `order`, its place in the suite.
int read_scenario_order(JsonInput& input);

/// Reads a scenario. Throws InputError that names file, field and remedy for any error. `word` is a path, or
/// the name of a scenario in the suite.
Scenario read_scenario(const std::string& word, const Changes& changes = {},
                       Invalid invalid = Invalid::refuse);

/// Says on standard error, once of each config.json, how the model file made of it differs. For commands, of
/// whose processes one may say it.
void say_differences(const Scenario& scenario);
/// Says on standard error that a profile's all_reduce_bus_gb_per_s has no effect, if it was given by --set or
/// contradicts the profile's all_reduce_measured, which comes first.
void say_overridden(const nlohmann::json& profile, const std::string& file);
/// Says the same of rates of attention given by --set where attention_cudnn comes first: with Transformer
/// Engine.
void say_overridden_attention(const nlohmann::json& profile, const std::string& file);

/// Whether no power limit slows a profile's GEMMs: it has no gemm_sustained, nor measured or fitted rates.
bool at_best_rate(const nlohmann::json& profile);
/// What to know of such a profile; "" of another.
std::string best_rate_note(const NamedData& cluster);
/// Whose kernels were priced.
std::string kernels_text(const std::set<std::string>& implementations);

/// The names of the suite's scenarios, in `reproduce`'s order.
std::vector<std::string> suite_scenarios();

/// The configuration that --configuration names, from 1. Throws InputError if there is none.
const Experiment& configuration_at(const Scenario& scenario, int number);

}  // namespace stp
