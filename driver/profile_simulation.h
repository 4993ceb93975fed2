// The simulations of `stp compare --profiles`. plots/stp_plots makes the comparison: gains, attribution
// to the machines' properties, tables and plots.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace stp {

struct ProfileSimulationOptions {
  std::vector<std::string> profiles;   // names or files; empty: the whole suite
  std::vector<std::string> scenarios;  // their configurations; the first one's cluster is the first machine
  std::vector<std::string> schedules;  // empty: the scenarios' schedules
  std::vector<std::string> set;        // KEY=VALUE (changes.h); of a cluster: one more machine
  bool attribute_shared = true;        // show the attribution of configurations that all scenarios share
};

/// Every configuration of the scenarios, at its largest number of microbatches, on every machine:
///
///     scenarios, schedules: names; gain: {of, over}; models: by name, as read
///     machines: [{name, fitted, assumed, uncertain: [{value, from, to}], profile as read}]; what is
///       "by machine" has their order. A fitted value is uncertain only where another machine carries it over
///     without_fixed_memory: the machines whose profiles have no fixed_memory_gb, for which it is counted on
///       none; empty where all or none have it
///     at_best_rate: the machines whose GEMMs no power limit slows; kernels: whose they are, in words
///     configurations: [{model, implementation, seq, microbatch_size, tp, pp, microbatches,
///       shared: whether every scenario has it, attributed: whether to show its attribution,
///       gemms: of one layer on one rank [{of: unit and pass, m, n, k, seconds: by machine}],
///       all_reduce: {bytes; by machine, null where TP does not fit: seconds, tp_communication_share,
///                    exposed_behind_attn, exposed_behind_mlp},
///       rows: by schedule, then machine: a record's row with what is published and `fits`: whether the
///         machine's memory holds all, the activations alone or nothing; or {refused: why},
///       varied: by machine [{value: an uncertain one, samples_per_s: [with its least, with its largest]},
///         by schedule, null if it refuses or nothing fits],
///       mixtures: [{machine, parts, samples_per_s: by set of parts, then schedule; null if it refuses or, if
///         not attributed, is not among the fastest that fit on both machines}]}]
///
/// A mixture is the first machine with some parts (stp/cluster/profile_part.h) of another machine from which
/// it differs: set s takes parts[i] if bit i of s is set. Throws InputError for profiles, scenarios and
/// schedules that cannot be compared.
nlohmann::json simulate_profiles(const ProfileSimulationOptions& options);

}  // namespace stp
