// The folder of results, and the names of a result's files and figures.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "run_simulated.h"
#include "stp/base/partial.h"

namespace stp {

/// A hidden folder beside the target. It is renamed to the target when all is written, or removed. A result
/// folder is therefore complete or does not exist, and none is overwritten.
class OutputFolder {
 public:
  /// The action if the target exists.
  enum class Taken { refuse, number };  // number: "-2", "-3", … after its name
  /// InputError if `target` exists and `taken` is `refuse`, or if its parent folder is not writable.
  explicit OutputFolder(const std::filesystem::path& target, Taken taken = Taken::refuse,
                        const char* flag = "--out");
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// The folder to write to.
  [[nodiscard]] const std::filesystem::path& path() const { return partial_; }
  [[nodiscard]] const std::filesystem::path& target() const { return target_; }
  /// Renames the folder to the target, or to the next free number. Throws InputError if another process has
  /// created the target.
  void publish();
  /// The same for what is hard to make again: all is on the disk before it has its name, whatever happens.
  void publish_on_disk();
  /// After a signal: if the folder has files, publishes it with "-interrupted" after its name. Throws
  /// Interrupted, which says what was kept, and `go_on`: how to go on.
  [[noreturn]] void publish_interrupted(const std::string& go_on = "");

 private:
  [[nodiscard]] bool rename_to(const std::filesystem::path& target) const;  // false: errno says why

  std::filesystem::path target_, partial_;
  Taken taken_;
  const char* flag_;  // that names the target
  FileDescriptor lock_;
};

/// A folder for a new run, `prefix` and the time (UTC), below results/runs: of the source tree of the build
/// or, if installed, of the current folder.
std::filesystem::path new_run_folder(const std::string& prefix);

/// `folder`/`stem``extension`, with "-2", "-3", … after the stem if that exists: different rows may have the
/// same file_word().
std::filesystem::path unused_path(const std::filesystem::path& folder, const std::string& stem,
                                  const std::string& extension);

/// An output file of a command, and the flag that names it.
struct OutputFile {
  std::string path;  // "-": standard output; "": none
  const char* flag;
};

/// Before the work begins: throws InputError that names the flag if a file exists and is not a device such as
/// /dev/null, if it cannot be created, or if two files are the same. Removes half-written files of
/// killed runs in the folders, and reports it.
void check_outputs(const std::vector<OutputFile>& files);

/// Writes to the file `path`, to standard output if it is "-", or nowhere if it is "". Returns false for "-":
/// nothing else may then be printed there.
bool write_text(const std::string& path, const std::function<std::string()>& text);
bool write_record(const std::string& path, const nlohmann::json& record);
/// A row of a record with what tables show and a record has by rank alone, or not at all: the busiest rank's
/// bubbles, tokens_per_s_per_gpu, peak_total_gb; of a simulated GPU, gpu_memory_gb and fits.
nlohmann::json csv_row(const Result& result);
/// As write_record(), for such rows as comma-separated values (RFC 4180). A column is a field of a row:
/// numbers in full, lists of numbers or words separated by spaces, fields of objects as "object.field". Lists
/// of objects (ranks) are left out.
bool write_csv(const std::string& path, const nlohmann::json& rows);

/// For Interrupted: how many rows are finished, and in which of `files` ("" and "-" are left out) they are.
std::string kept_rows(size_t rows, size_t of, const std::vector<std::string>& files);

// For a row of a result record:
/// Its part of a file name: "stp-llm-12.1b-s3072-tp4-pp4-m64". Only letters, digits, - _ and .
std::string file_word(const nlohmann::json& row);
/// Its ranks and microbatches: "tp 4, pp 4, cp 2 by all-to-all, m 64"; other axes, and the microbatch size,
/// where they are more than 1.
std::string ranks_text(const nlohmann::json& row);
/// Its title: "stp, llm-12.1b on a800, seq 3072, tp 4, pp 4, m 64".
std::string heading(const nlohmann::json& row);

/// Writes the Chrome trace of a simulated step, of all microbatches or of `ends` at each end
/// (chrome_trace.h). plots/timelines.py draws whole ones.
void write_trace(const std::filesystem::path& path, const SimulatedRun& run, int ends = 0);

}  // namespace stp
