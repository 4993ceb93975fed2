// The space that `stp tune` searches: what is fixed, the values of each axis, and what a framework can run.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands.h"
#include "framework.h"
#include "scenario.h"

namespace stp {

/// Configurations that are refused.
struct Refused {
  std::map<std::string, size_t> by_reason;  // without its numbers and remedy: "schedules: N microbatches …"
  std::map<std::string, std::string> messages;  // the first of each reason, whole

  void add(const InputError& error, size_t count);
  void add(const Refused& other);
  /// That nothing else is left.
  [[nodiscard]] InputError all() const;
};

/// What lowers memory and never shortens a step.
struct Saver {
  Recompute recompute;
  double offload = 0;

  /// Whether it saves all that `other` does, and so is needless where that one fits.
  [[nodiscard]] bool covers(const Saver& other) const;
};

/// A schedule with its chunks, and the rule that divides layers.
struct Variant {
  ScheduleChoice choice;
  int chunks;  // 0: the schedule's own
  LayerSplit split;
};

/// A configuration but for its variant and its saver: an Experiment from the scenario reader.
class TuneSpace {
 public:
  explicit TuneSpace(const TuneOptions& options);

  std::string file;  // for errors
  int gpus;
  Framework framework;
  std::vector<Experiment> plans;
  std::vector<Saver> savers;  // none of them covers a later one
  Refused refused;            // by the reader
  size_t configurations = 0;  // those refused included
  bool limited = false;       // whether values of an axis are named

  /// The variants of a plan with `pp` ranks.
  [[nodiscard]] std::vector<Variant> variants(int pp) const;
  /// The axes at whose end it is, although more is possible: "the largest … that was tried (8): try …".
  [[nodiscard]] std::vector<std::string> ends(const Experiment& experiment) const;
  /// A plan with a variant and a saver.
  [[nodiscard]] Experiment experiment(const Experiment& plan, const Variant& variant,
                                      const Saver& saver) const;

 private:
  void read_ranks(const TuneOptions& options);
  void read_axes(const TuneOptions& options);
  void read_savers(bool named);
  void read_plans();
  /// The most ranks of an axis, by its place in kAxes, unless asked for.
  [[nodiscard]] int limit(size_t axis) const;
  /// Adds all divisions of the GPUs that `strategy` leaves over the axes from `axis` on.
  void divide(Strategy strategy, size_t axis, std::vector<Strategy>& all) const;
  [[nodiscard]] std::vector<int> microbatch_sizes(int dp) const;
  [[nodiscard]] InputError no_split() const;
  [[nodiscard]] InputError no_variant() const;
  void read_split(const Strategy& strategy, const std::vector<int>& microbatch_sizes);
  void read_plan(const Strategy& strategy, int microbatch_size, bool sequence, const std::string& overlap);
  [[nodiscard]] Experiment read(const nlohmann::json& content) const;

  Changes changes_;
  nlohmann::json base_;              // fields that all configurations have
  std::optional<Experiment> first_;  // the files that all share
  nlohmann::json cp_method_;         // of configurations with context parallelism; null: its default
  int layers_ = 0, global_batch_ = 0;
  std::array<std::vector<int>, std::size(kAxes)> ranks_;  // by kAxes; these three empty: all that is possible
  std::vector<int> chunks_, microbatch_sizes_;
  std::vector<std::string> schedules_, splits_, recomputes_, overlaps_;
  std::vector<std::string> sequence_;
  std::vector<double> offloads_;
};

}  // namespace stp
