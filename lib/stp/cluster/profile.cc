#include "stp/cluster/profile.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "stp/base/data.h"
#include "stp/base/json_input.h"

namespace stp {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9, kMicro = 1e-6, kTiny = 1e-9, kMebi = 1024 * 1024;

// How far an assumed value without a range may be off: this many times more or less.
// Rates, and shares of a peak: a chip's best and its usual GEMMs, or a link's data sheet and its transfers,
// differ by about a quarter.
constexpr double kSpreadOfRates = 1.25;
// Overheads and latencies: they depend on software, and guesses tell their order (3 to 15 us for a launch).
constexpr double kSpreadOfOverheads = 2;
// Adapters of a node, and SMs of a receive: nodes have one adapter for one, two or four GPUs.
constexpr double kSpreadOfCounts = 2;
// Counts and capacities that are in every data sheet, though a source may name another machine's.
constexpr double kExact = 1;

// How sure a value is: on this machine, by its makers, from other values, or not at all.
constexpr const char* kSure[] = {"measured", "documented", "inferred", "unknown"};

std::string require_source(JsonInput& field) {
  std::string source = field.string("source");
  if (source.empty()) throw field.error("source", "is empty", "say where the value comes from");
  const std::string sure = field.string_or("sure", "unknown");
  if (std::ranges::find(kSure, sure) == std::end(kSure))
    throw field.error("sure", "\"" + sure + "\" is not a choice",
                      "write measured, documented, inferred or unknown");
  return source;
}

// Of a source: neither measured, specified nor fitted. Profiles have many: std::regex would double their
// reading.
bool says_assumed(const std::string& source) {
  std::string words = " ";  // in lower case, each between spaces
  for (const unsigned char c : source + " ")
    words += std::isalnum(c) != 0 || c == '_' ? static_cast<char>(std::tolower(c)) : ' ';
  return words.starts_with(" as on ") || words.starts_with(" as fitted on ") ||
         words.find(" assumed ") != std::string::npos || words.find(" carried over ") != std::string::npos;
}

// The list "all_reduce_measured": per group size its source and bus bandwidths by message size.
std::vector<MeasuredAllReduce> read_measured(JsonInput& input, int gpus_per_node) {
  std::vector<MeasuredAllReduce> measured;
  if (!input.has("all_reduce_measured")) return measured;
  for (size_t i = 0; i < input.size("all_reduce_measured"); ++i) {
    JsonInput group = input.element("all_reduce_measured", i);
    MeasuredAllReduce curve{group.integer("ranks", 2, 10000), {}};
    if (curve.ranks > gpus_per_node)
      throw group.error(
          "ranks",
          "is " + std::to_string(curve.ranks) + ", and a node has " + std::to_string(gpus_per_node) + " GPUs",
          "remove this group, or all of them: --set cluster.all_reduce_measured=[]");
    for (const MeasuredAllReduce& other : measured)
      if (other.ranks == curve.ranks)
        throw group.error("ranks", "is given twice", "keep one measurement per number of ranks");
    require_source(group);
    curve.in_switch = group.boolean_or("in_switch", false);
    if (group.size("sizes") == 0) throw group.error("sizes", "is empty", "write at least one size");
    for (size_t j = 0; j < group.size("sizes"); ++j) {
      JsonInput size = group.element("sizes", j);
      const double bytes = size.number("mib", kTiny, 1e9) * kMebi;
      const double bus = size.number("bus_gb_per_s", kTiny, 1e6) * kGiga;
      const MeasuredAllReduce::Point point{bytes, bytes * ring_share(curve.ranks) / bus};
      if (!curve.points.empty() && point.bytes <= curve.points.back().bytes)
        throw size.error("mib", "is not larger than the size before", "sort the sizes");
      if (!curve.points.empty() && point.seconds < curve.points.back().seconds)
        throw size.error("bus_gb_per_s", "makes the larger message the faster one", "check the measurement");
      size.done();
      curve.points.push_back(point);
    }
    group.done();
    measured.push_back(curve);
  }
  return measured;
}

std::vector<MeasuredGemm> read_gemms(JsonInput& input) {
  std::vector<MeasuredGemm> gemms;
  if (!input.has("gemm_measured")) return gemms;
  JsonInput list = input.object("gemm_measured");
  require_source(list);
  if (list.size("shapes") == 0) throw list.error("shapes", "is empty", "write at least one shape");
  for (size_t i = 0; i < list.size("shapes"); ++i) {
    JsonInput shape = list.element("shapes", i);
    const std::string name = shape.string("product");
    const auto* const kind = std::find_if(kGemmKinds.begin(), kGemmKinds.end(),
                                          [&](GemmKind each) { return to_string(each) == name; });
    if (kind == kGemmKinds.end())
      throw shape.error("product", "\"" + name + "\" is not a GEMM of a linear layer",
                        "use forward, input_gradient or weight_gradient");
    const double m = shape.number("m", 1, 1e9), n = shape.number("n", 1, 1e9), k = shape.number("k", 1, 1e9);
    gemms.push_back({{m, n, k, *kind}, shape.number("us", kTiny, 1e12) * kMicro});
    shape.done();
  }
  list.done();
  return gemms;
}

MeasuredAttention read_attention(JsonInput& input) {
  MeasuredAttention measured;
  if (!input.has("attention_cudnn")) return measured;
  JsonInput field = input.object("attention_cudnn");
  require_source(field);
  measured.heads = field.integer("heads", 1, 1 << 14);
  if (field.size("lengths") == 0) throw field.error("lengths", "is empty", "write at least one length");
  for (size_t i = 0; i < field.size("lengths"); ++i) {
    JsonInput length = field.element("lengths", i);
    const auto rate = [&](const char* key) { return length.number(key, kTiny, 1e6) * kTera; };
    const MeasuredAttention::Point point{length.number("seq", 1, 1e9), rate("causal_forward_tflops"),
                                         rate("causal_backward_tflops"), rate("full_forward_tflops"),
                                         rate("full_backward_tflops")};
    length.done();
    if (!measured.points.empty() && point.seq <= measured.points.back().seq)
      throw length.error("seq", "is not larger than the length before", "sort the lengths");
    measured.points.push_back(point);
  }
  field.done();
  return measured;
}

SharedProcessors read_shared(JsonInput& input) {
  SharedProcessors shared;
  if (!input.has("shared_processors")) return shared;
  JsonInput field = input.object("shared_processors");
  require_source(field);
  shared.rates = field.numbers("rates", kTiny, 10);
  if (shared.rates.empty() || shared.rates[0] != 1)
    throw field.error("rates", "must begin with 1, the speed of one that is busy alone",
                      "write one rate per processor");
  field.done();
  return shared;
}

double measured_seconds(const MeasuredAllReduce& curve, double latency, double bytes) {
  const MeasuredAllReduce::Point& last = curve.points.back();
  if (bytes >= last.bytes) return last.seconds * bytes / last.bytes;
  MeasuredAllReduce::Point below{0, std::min(latency, curve.points.front().seconds)};
  for (const MeasuredAllReduce::Point& above : curve.points) {
    if (bytes < above.bytes)
      return std::lerp(below.seconds, above.seconds, (bytes - below.bytes) / (above.bytes - below.bytes));
    below = above;
  }
  return last.seconds;
}

// Reads the fields of a profile: {"value", "source"}, for fitted values also "fitted" and "range".
class ProfileReader {
 public:
  ProfileReader(JsonInput& input, HardwareProfile& profile) : input_(input), profile_(profile) {}

  double rate(const std::string& key) { return value(key, kTiny, 1e6, kSpreadOfRates); }
  double share(const std::string& key, double low = kTiny) { return value(key, low, 1, kSpreadOfRates); }
  double overhead(const std::string& key, double high) { return value(key, 0, high, kSpreadOfOverheads); }
  double capacity(const std::string& key, double low = kTiny) { return value(key, low, 1e6, kExact); }
  // Of a value in microseconds.
  double seconds(const std::string& key) {
    const double microseconds = overhead(key, 1e6);
    if (microseconds > 0 && microseconds < 1e-4)
      throw input_.error(key, "is " + shown("%g", microseconds) + " µs, which nothing reaches",
                         "write microseconds, not seconds, or 0 for none");
    return microseconds * kMicro;
  }
  int whole(const std::string& key, int low, int high, double spread = kExact) {
    JsonInput field = field_of(key);
    const int number = field.integer("value", low, high);
    if (finish(key, field, number, low, high, spread)) {
      UncertainValue& ends = profile_.uncertain.back();
      ends = {key, std::ceil(ends.from), std::floor(ends.to)};
    }
    return number;
  }

  // The ends of a value that was read.
  [[nodiscard]] UncertainValue ends_of(const std::string& key, double number) const {
    const auto found = std::ranges::find(profile_.uncertain, key, &UncertainValue::name);
    return found == profile_.uncertain.end() ? UncertainValue{key, number, number} : *found;
  }

 private:
  JsonInput field_of(const std::string& key) {
    if (input_.has(key) && input_.value(key).is_number())
      throw input_.error(key, "must be an object, not a number",
                         R"(write {"value": )" + json_text(input_.value(key)) + R"(, "source": "…"})");
    return input_.object(key);
  }
  double value(const std::string& key, double low, double high, double spread) {
    JsonInput field = field_of(key);
    const double number = field.number("value", low, high);
    finish(key, field, number, low, high, spread);
    return number;
  }
  // Returns whether the value is uncertain.
  bool finish(const std::string& key, JsonInput& field, double number, double low, double high,
              double spread) {
    const bool fitted = field.boolean_or("fitted", false);
    const bool assumed = says_assumed(require_source(field)) && !fitted;
    UncertainValue ends{key, number, number};
    if (assumed) ends = {key, std::max(low, number / spread), std::min(high, number * spread)};
    if (fitted || field.has("range")) {
      JsonInput range = field.object("range");
      const double from = range.number("from", low, high), to = range.number("to", low, high);
      require_source(range);
      range.done();
      if (number < from || number > to)
        throw field.error("value", "lies outside its physical range",
                          "fit again, or widen the range with a source");
      ends = {key, from, to};
    }
    if (fitted) profile_.fitted.push_back(key);
    if (assumed) profile_.assumed.push_back(key);
    if (ends.from < ends.to) profile_.uncertain.push_back(ends);
    field.done();
    return ends.from < ends.to;
  }

  JsonInput& input_;
  HardwareProfile& profile_;
};

// What one GPU computes and holds.
void read_gpu(JsonInput& input, ProfileReader& reader, HardwareProfile& profile) {
  profile.peak_flops = reader.rate("peak_tflops") * kTera;
  profile.sms = reader.whole("sms", 1, 10000);
  profile.gemm_overhead_k = reader.overhead("gemm_overhead_k", 1e5);
  profile.gemm_efficiency = reader.share("gemm_efficiency");
  if (input.has("gemm_sustained")) profile.gemm_sustained = reader.share("gemm_sustained");
  profile.attention_forward_efficiency = reader.share("attention_forward_efficiency");
  profile.attention_backward_efficiency = reader.share("attention_backward_efficiency");
  if (input.has("attention_tile_overhead"))
    profile.attention_tile_overhead = reader.overhead("attention_tile_overhead", 1e5);
  profile.attention_cudnn = read_attention(input);
  profile.memory_bytes_per_s = reader.rate("memory_gb_per_s") * kGiga;
  profile.memory_bytes = reader.capacity("memory_gb") * kGiga;
  if (input.has("fixed_memory_gb")) {
    const double fixed = reader.capacity("fixed_memory_gb", 0);
    const UncertainValue ends = reader.ends_of("fixed_memory_gb", fixed);
    profile.fixed_memory_bytes = fixed * kGiga;
    profile.least_fixed_memory_bytes = ends.from * kGiga;
    profile.most_fixed_memory_bytes = ends.to * kGiga;
  }
  profile.kernel_overhead_s = reader.seconds("kernel_overhead_us");
  if (input.has("host_launch_us")) profile.host_launch_s = reader.seconds("host_launch_us");
  profile.elementwise_factor = reader.overhead("elementwise_factor", 100);
  if (input.has("elementwise_undivided"))
    profile.elementwise_undivided = reader.share("elementwise_undivided", 0);
}

// What passes between GPUs, and what that costs a step.
void read_links(JsonInput& input, ProfileReader& reader, HardwareProfile& profile) {
  profile.all_reduce_latency_s = reader.seconds("all_reduce_latency_us");
  profile.all_reduce_hop_latency_s = reader.seconds("all_reduce_hop_latency_us");
  profile.all_reduce_bus_bytes_per_s = reader.rate("all_reduce_bus_gb_per_s") * kGiga;
  profile.gemm_measured = read_gemms(input);
  profile.shared = read_shared(input);
  profile.all_reduce_measured = read_measured(input, profile.gpus_per_node);
  profile.within_node = {reader.seconds("p2p_within_node_latency_us"),
                         reader.rate("p2p_within_node_gb_per_s") * kGiga};
  profile.between_nodes = {reader.seconds("p2p_between_nodes_latency_us"),
                           reader.rate("p2p_between_nodes_gb_per_s") * kGiga};
  profile.host_to_device_bytes_per_s = reader.rate("host_to_device_gb_per_s") * kGiga;
  profile.device_to_host_bytes_per_s = reader.rate("device_to_host_gb_per_s") * kGiga;
  profile.contention_compute = reader.share("contention_compute");
  profile.contention_all_reduce = reader.share("contention_all_reduce");
  if (input.has("reduction_sms"))
    profile.reduction_sms = reader.whole("reduction_sms", 0, 64, kSpreadOfCounts);
  if (input.has("batched_transfer_us")) profile.batched_transfer_s = reader.seconds("batched_transfer_us");
  if (input.has("step_overhead_us")) profile.step_overhead_s = reader.seconds("step_overhead_us");
  if (input.has("gpu_spread")) profile.gpu_spread = reader.share("gpu_spread", 0);
  if (input.has("receive_sms")) profile.receive_sms = reader.whole("receive_sms", 0, 64, kSpreadOfCounts);
}

// Refuses numbers of another unit, as no GPU comes near them. Processors, whose GEMMs are measured, may.
void check_units(JsonInput& input, const HardwareProfile& profile) {
  if (!profile.gemm_measured.empty() || !profile.shared.rates.empty()) return;
  const auto check = [&](const char* key, double number, double least, double most, const std::string& unit) {
    if (number < least || number > most)
      throw input.error(key, "is " + shown("%g", number) + " " + unit + ", which no GPU has",
                        "write it in " + unit);
  };
  check("peak_tflops", profile.peak_flops / kTera, 3, 1e5, "TFLOP/s");
  check("memory_gb", profile.memory_bytes / kGiga, 0.5, 5000, "GB");
}

const MeasuredAllReduce* measured_for(const HardwareProfile& profile, int ranks) {
  const auto& all = profile.all_reduce_measured;
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const MeasuredAllReduce& curve) { return curve.ranks == ranks; });
  return found == all.end() ? nullptr : &*found;
}

double ring_latency(const HardwareProfile& profile, int ranks) {
  return profile.all_reduce_latency_s + 2 * (ranks - 1) * profile.all_reduce_hop_latency_s;
}
double ring_seconds(const HardwareProfile& profile, double bytes, int ranks) {
  return ring_latency(profile, ranks) + bytes * ring_share(ranks) / profile.all_reduce_bus_bytes_per_s;
}

}  // namespace

HardwareProfile read_profile(const std::string& path) { return read_profile(read_json_file(path), path); }

HardwareProfile read_profile(const nlohmann::json& content, const std::string& file) {
  refuse_other_kind(content, file, "a hardware profile");
  JsonInput input(content, file);
  input.collect_missing();
  HardwareProfile profile{};
  profile.name = input.string("name");
  profile.accelerator = input.string("accelerator");
  profile.fitted_to = input.string_or("fitted_to", "");
  ProfileReader reader(input, profile);
  profile.gpus_per_node = reader.whole("gpus_per_node", 1, 1024);
  profile.adapters_per_node = input.has("adapters_per_node")
                                  ? reader.whole("adapters_per_node", 1, 1024, kSpreadOfCounts)
                                  : profile.gpus_per_node;
  read_gpu(input, reader, profile);
  read_links(input, reader, profile);
  if (!profile.fitted.empty() && profile.fitted_to.empty())
    throw input.error("fitted_to", "is missing, but values are marked as fitted",
                      "name the rows that they were fitted to");
  check_units(input, profile);
  input.done();
  return profile;
}

double ring_share(int ranks) { return 2.0 * (ranks - 1) / ranks; }

double all_reduce_seconds(const HardwareProfile& profile, double bytes, int ranks) {
  if (ranks == 1) return 0;
  const MeasuredAllReduce* curve = measured_for(profile, ranks);
  return curve != nullptr ? measured_seconds(*curve, ring_latency(profile, ranks), bytes)
                          : ring_seconds(profile, bytes, ranks);
}

double half_all_reduce_seconds(const HardwareProfile& profile, double bytes, int ranks) {
  if (ranks == 1) return 0;
  double all = all_reduce_seconds(profile, bytes, ranks);
  if (const auto* curve = measured_for(profile, ranks); curve != nullptr && curve->in_switch)
    all = std::max(all, ring_seconds(profile, bytes, ranks));
  return (all + profile.all_reduce_latency_s) / 2;
}

double transfer_seconds(const LinkProfile& link, double bytes) {
  return link.latency_s + bytes / link.bytes_per_s;
}

}  // namespace stp
