// Result records side by side: per configuration and schedule, each file's figures and how they differ from
// the first file's.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "stp/report/record.h"
#include "stp/report/verdicts.h"

namespace stp {

/// One row of a record: what it is of, and its figures.
struct RecordRow {
  nlohmann::json fields;  // the row as written
  std::string schedule;
  std::optional<double> throughput, step_s, mfu, peak_memory_gb;
  // Shares of the step, of the rank that computes most: the one that sets the pace.
  std::optional<double> pp_bubble, tp_bubble;
  std::vector<double> repeats_s;
};

struct RecordFile {
  std::string path;
  std::string scenario;  // its name
  Evidence evidence;
  nlohmann::json system, provenance;  // as written
  std::vector<RecordRow> rows;
};

/// Whether `content` looks like one.
bool is_record(const nlohmann::json& content);

/// InputError that names file, field and remedy.
RecordFile read_record(const nlohmann::json& content, const std::string& path);

/// All files beside the first, as results/schema/comparison.schema.json has it under kind `records`.
///
/// Rows are of the same thing if they agree in schedule, model, lengths, parallelism and microbatches, as far
/// as every file knows these, and in whatever else tells two rows of one file apart; in what then still
/// differs (the cluster, say) the files differ, and that is said. Where every file has one schedule only,
/// these are set against each other. Figures of one evidence are compared; of two, the weaker is a prediction
/// of the stronger, which is said apart. InputError if a file has no row in common with the first.
nlohmann::json compare_records(const std::vector<RecordFile>& files, const VerdictRule& rule = {});

}  // namespace stp
