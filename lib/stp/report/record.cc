#include "stp/report/record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "stp/base/partial.h"
#include "stp/report/statistics.h"
#include "stp/version.h"

namespace stp {

using nlohmann::json;

// Structs whose fields have their names in the record.

void to_json(json& value, const RankResult::Memory& memory) {
  value = {{"activations", memory.activations},
           {"weights", memory.weights},
           {"gradients", memory.gradients},
           {"optimizer", memory.optimizer},
           {"host", memory.host}};
  if (memory.buffers > 0) value["buffers"] = memory.buffers;
  if (memory.fixed > 0) value["fixed"] = memory.fixed;
}
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Prediction, cluster, step_time_s, oversubscribed, disturbed_steps)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Replayed::Group, calls, late_s, latest_s, link_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Replayed, rank, cluster, groups)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BlasShare, share, gflop_per_s)

namespace {

template <typename T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}
json or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

// The value of the first line of a file that begins with `key`, without what separates it from that or quotes
// it.
std::string value_of(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t begin = line.find_first_not_of(" \t:=\"", key.size());
    if (line.starts_with(key) && begin != std::string::npos)
      return line.substr(begin, line.find_last_not_of('"') + 1 - begin);
  }
  return "";
}

json provenance(const std::vector<std::string>& argv) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  char time[32];
  std::tm utc{};
  std::strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
  return {{"version", STP_VERSION},
          {"git_revision", or_null(std::string(STP_GIT_REVISION))},
          {"git_dirty", STP_GIT_DIRTY != 0},
          {"build_type", STP_BUILD_TYPE},
          {"compiler", __VERSION__},
          {"argv", argv},
          {"time", time}};
}

json configuration_json(const Configuration& c) {
  json value = {{"name", or_null(c.name)},
                {"model", or_null(c.model)},
                {"cluster", or_null(c.cluster)},
                {"seq", c.seq > 0 ? json(c.seq) : json(nullptr)},
                {"zero", c.strategy.zero ? 1 : 0},
                {"gpus", c.strategy.world_size()},
                {"microbatches", c.microbatches},
                {"microbatch_size", c.microbatch_size},
                {"layers_per_chunk", c.layers_per_chunk},
                {"placement", c.placement},
                {"offloaded", c.strategy.offload > 0},
                {"offload_ratio", c.strategy.offload},
                {"unit_costs", c.unit_costs ? *c.unit_costs : json(nullptr)}};
  for (const Axis& axis : kAxes) value[axis.name] = c.strategy.*axis.ranks;
  if (c.strategy.exchanges_heads()) value["cp_method"] = "all-to-all";
  if (c.strategy.offload_chunks > 0) {
    value["offload_chunks"] = c.strategy.offload_chunks;
    value["offload_share"] = c.strategy.offload_share;
    if (c.strategy.offload_round_trip > 0) value["offload_round_trip"] = c.strategy.offload_round_trip;
  }
  // Of models alone.
  for (const char* option : {"contention", "gradients", "recompute", "sequence_parallel", "tp_overlap"})
    value[option] = nullptr;
  if (c.options) value.update(*c.options);
  return value;
}

json rank_json(const RankResult& rank) {
  return {{"compute_s", rank.compute_s},
          {"pp_bubble_s", rank.pp_bubble_s},
          {"tp_bubble_s", rank.tp_bubble_s},
          {"peak_activation_bytes", rank.memory ? json(rank.memory->activations) : json(nullptr)},
          {"peak_activation_chunks", rank.peak_activation_chunks},
          {"memory_bytes", or_null(rank.memory)}};
}

// The largest of all ranks; none where one does not know its memory.
template <typename Bytes>
std::optional<double> peak_gb(const std::vector<RankResult>& ranks, Bytes bytes_of) {
  double peak = 0;
  for (const RankResult& rank : ranks) {
    if (!rank.memory) return std::nullopt;
    peak = std::max(peak, bytes_of(*rank.memory));
  }
  return peak / 1e9;
}

// Further fields of a row of a run on devices.
json measured_json(const Measured& measured, double step_time_s) {
  json row = {{"backend", measured.backend},
              {"processes", measured.processes},
              {"type", measured.type},
              {"ranks_per_device", or_null(measured.ranks_per_device)},
              {"losses", measured.losses},
              {"parity", nullptr},
              {"predicted", or_null(measured.predicted)},
              {"replayed", or_null(measured.replayed)},
              {"blas", or_null(measured.blas)},
              {"scratch_bytes", measured.scratch_bytes},
              {"share_in_graphs", or_null(measured.share_in_graphs)},
              {"kernel_time_s", or_null(measured.kernel_time_s)}};
  if (const auto& parity = measured.parity)
    row["parity"] = {{"loss", parity->loss},
                     {"gradient", parity->gradient},
                     {"one_rank_gradient", or_null(parity->one_rank_gradient)}};
  if (measured.predicted) row["predicted"]["error"] = measured.predicted->step_time_s / step_time_s - 1;
  return row;
}

}  // namespace

// Simulated accelerators are the scenario's.
json system_description() {
  utsname kernel{};
  uname(&kernel);
  // Major and minor version; what follows is the distributor's.
  const std::string release = kernel.release;
  const std::string series = release.substr(0, release.find('.', release.find('.') + 1));
  return {{"host_processor_model_name", or_null(value_of("/proc/cpuinfo", "model name"))},
          {"host_processor_core_count", std::thread::hardware_concurrency()},
          {"host_memory_capacity", or_null(value_of("/proc/meminfo", "MemTotal"))},
          {"operating_system", or_null(value_of("/etc/os-release", "PRETTY_NAME"))},
          {"kernel", std::string(kernel.sysname) + " " + series + " " + kernel.machine}};
}

std::string to_string(Evidence evidence) {
  constexpr std::array kNames{"measured", "replayed", "emulated", "simulated"};
  return kNames.at(static_cast<size_t>(evidence));
}

double Result::step_time_s() const { return median(step_times_s); }

std::optional<double> Result::gap() const {
  if (!lower_bound_s || *lower_bound_s <= 0) return std::nullopt;
  return std::max(0.0, step_time_s() / *lower_bound_s - 1);  // they may be equal but for rounding
}

std::optional<double> Result::throughput() const {
  if (step_time_s() <= 0 || (measured && measured->replayed)) return std::nullopt;
  return configuration.samples() / step_time_s();
}

std::optional<double> Result::tokens_per_s_per_gpu() const {
  const auto samples = throughput();
  if (!samples || configuration.seq == 0) return std::nullopt;
  return *samples * configuration.seq / configuration.strategy.world_size();
}

const RankResult& Result::busiest_rank() const {
  return *std::max_element(ranks.begin(), ranks.end(), [](const RankResult& a, const RankResult& b) {
    return a.compute_s < b.compute_s;
  });
}

double Result::idle_s() const {
  double busiest = 0;
  for (const RankResult& rank : ranks) busiest = std::max(busiest, rank.compute_s);
  return std::max(0.0, step_time_s() - busiest);  // not below by rounding
}

int Result::peak_activation_chunks() const {
  int peak = 0;
  for (const RankResult& rank : ranks) peak = std::max(peak, rank.peak_activation_chunks);
  return peak;
}

std::optional<double> Result::peak_memory_gb() const {
  return peak_gb(ranks, [](const RankResult::Memory& memory) { return memory.activations; });
}

std::string to_string(Fit fit) {
  static constexpr std::array names{"yes", "maybe", "no"};
  return names[static_cast<size_t>(fit)];
}

std::optional<double> Result::peak_total_gb() const {
  return peak_gb(ranks, [](const RankResult::Memory& memory) { return memory.on_device(); });
}

json to_json(const Result& result) {
  json row = configuration_json(result.configuration);
  json ranks = json::array();
  for (const RankResult& rank : result.ranks) ranks.push_back(rank_json(rank));
  const auto [fastest, slowest] = std::minmax_element(result.step_times_s.begin(), result.step_times_s.end());
  row.update({{"schedule", result.schedule},
              {"idle_s", result.idle_s()},
              {"peak_activation_chunks", result.peak_activation_chunks()},
              {"time_unit", result.configuration.model.empty() ? "units" : "s"},
              {"step_time_s", result.step_time_s()},
              {"step_time_repeats_s", result.step_times_s},
              {"step_time_spread_s", *slowest - *fastest},
              {"throughput_samples_per_s", or_null(result.throughput())},
              {"mfu", or_null(result.mfu)},
              {"mfu_paper", or_null(result.mfu_paper)},
              {"tp_communication_share", or_null(result.tp_communication_share)},
              {"peak_memory_gb", or_null(result.peak_memory_gb())},
              {"ranks", ranks}});
  if (result.memory_margin_gb) row["memory_margin_gb"] = *result.memory_margin_gb;
  if (result.fits) row["fits"] = to_string(*result.fits);
  if (result.lower_bound_s) row["lower_bound_s"] = *result.lower_bound_s;
  if (result.offload_ratio_bound) row["offload_ratio_bound"] = *result.offload_ratio_bound;
  if (result.measured) row.update(measured_json(*result.measured, result.step_time_s()));
  return row;
}

json origin(const std::vector<std::string>& argv) {
  return {{"system", system_description()}, {"provenance", provenance(argv)}};
}

json make_record(const json& scenario, Evidence evidence, const std::vector<std::string>& argv,
                 const std::string& rows_key, json rows) {
  json record = origin(argv);
  record.update({{"schema_version", "1.18.0"},
                 {"scenario", scenario},
                 {"evidence", to_string(evidence)},
                 {rows_key, std::move(rows)}});
  return record;
}

std::string record_text(const json& record) { return json_text(record, 1) + "\n"; }

namespace {

// Whether all of `text` went there.
bool write_all(int file, const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = write(file, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    written += static_cast<size_t>(count);
  }
  return true;
}

[[noreturn]] void refuse_place(const std::string& path) {
  throw InputError(path, "", "cannot be created", "check that its folder exists and may be written");
}

[[noreturn]] void fail_writing(const std::string& path) {
  throw std::runtime_error(path +
                           ": could not be written completely (is the disk full, or file size limited?)");
}

void write_to_device(const std::string& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) refuse_place(path);
  const bool whole = write_all(file, text);
  if (close(file) != 0 || !whole) fail_writing(path);
}

}  // namespace

void write_new_file(const std::string& path, const std::string& text) {
  std::error_code ignored;
  if (std::filesystem::is_character_file(path, ignored)) return write_to_device(path, text);
  // Written beside the target and linked to its name when complete: a link never replaces a file.
  std::filesystem::path partial;
  const FileDescriptor lock =
      make_partial(std::filesystem::absolute(path).parent_path(), partial, PartialKind::file);
  if (!lock) refuse_place(path);
  const bool whole =
      write_all(lock.get(), text) && fchmod(lock.get(), umasked(0666)) == 0 && fsync(lock.get()) == 0;
  const bool linked = whole && link(partial.c_str(), path.c_str()) == 0;
  const int error = errno;
  unlink(partial.c_str());
  if (!whole) fail_writing(path);
  if (!linked && error == EEXIST)
    throw InputError(path, "", "exists, and results are never overwritten",
                     "name another file or move this one");
  if (!linked) throw std::runtime_error(path + ": could not be written: " + std::strerror(error));
}

}  // namespace stp
