#include "stp/cluster/profile.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "stp/base/json_input.h"

namespace stp {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9, kMicro = 1e-6, kTiny = 1e-9, kMebi = 1024 * 1024;

void require_source(JsonInput& field) {
  if (field.string("source").empty())
    throw field.error("source", "is empty", "say where the value comes from");
}

// The list "all_reduce_measured": per group size its source and bus bandwidths by message size.
std::vector<MeasuredAllReduce> read_measured(JsonInput& input, int gpus_per_node) {
  std::vector<MeasuredAllReduce> measured;
  if (!input.has("all_reduce_measured")) return measured;
  for (size_t i = 0; i < input.size("all_reduce_measured"); ++i) {
    JsonInput group = input.element("all_reduce_measured", i);
    MeasuredAllReduce curve{group.integer("ranks", 2, gpus_per_node), {}};
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

  double value(const std::string& key, double low, double high) {
    JsonInput field = input_.object(key);
    return finish(key, field, field.number("value", low, high), low, high);
  }
  int whole(const std::string& key, int low, int high) {
    JsonInput field = input_.object(key);
    const int number = field.integer("value", low, high);
    finish(key, field, number, low, high);
    return number;
  }

 private:
  double finish(const std::string& key, JsonInput& field, double number, double low, double high) {
    require_source(field);
    const bool fitted = field.boolean_or("fitted", false);
    if (fitted || field.has("range")) {
      JsonInput range = field.object("range");
      const double from = range.number("from", low, high), to = range.number("to", low, high);
      require_source(range);
      range.done();
      if (number < from || number > to)
        throw field.error("value", "lies outside its physical range",
                          "fit again, or widen the range with a source");
      profile_.ranged.push_back(key);
    }
    if (fitted) profile_.fitted.push_back(key);
    field.done();
    return number;
  }

  JsonInput& input_;
  HardwareProfile& profile_;
};

}  // namespace

HardwareProfile read_profile(const std::string& path) { return read_profile(read_json_file(path), path); }

HardwareProfile read_profile(const nlohmann::json& content, const std::string& file) {
  JsonInput input(content, file);
  input.collect_missing();
  HardwareProfile profile{};
  profile.name = input.string("name");
  profile.accelerator = input.string("accelerator");
  profile.fitted_to = input.string_or("fitted_to", "");
  ProfileReader reader(input, profile);
  profile.gpus_per_node = reader.whole("gpus_per_node", 1, 1024);
  profile.adapters_per_node =
      input.has("adapters_per_node") ? reader.whole("adapters_per_node", 1, 1024) : profile.gpus_per_node;
  profile.peak_flops = reader.value("peak_tflops", kTiny, 1e6) * kTera;
  profile.sms = reader.whole("sms", 1, 10000);
  profile.gemm_overhead_k = reader.value("gemm_overhead_k", 0, 1e5);
  profile.gemm_efficiency = reader.value("gemm_efficiency", kTiny, 1);
  profile.attention_forward_efficiency = reader.value("attention_forward_efficiency", kTiny, 1);
  profile.attention_backward_efficiency = reader.value("attention_backward_efficiency", kTiny, 1);
  if (input.has("attention_tile_overhead"))
    profile.attention_tile_overhead = reader.value("attention_tile_overhead", 0, 1e5);
  profile.memory_bytes_per_s = reader.value("memory_gb_per_s", kTiny, 1e6) * kGiga;
  profile.memory_bytes = reader.value("memory_gb", kTiny, 1e6) * kGiga;
  profile.kernel_overhead_s = reader.value("kernel_overhead_us", 0, 1e6) * kMicro;
  if (input.has("host_launch_us")) profile.host_launch_s = reader.value("host_launch_us", 0, 1e6) * kMicro;
  profile.elementwise_factor = reader.value("elementwise_factor", 0, 100);
  if (input.has("elementwise_undivided"))
    profile.elementwise_undivided = reader.value("elementwise_undivided", 0, 1);
  profile.all_reduce_latency_s = reader.value("all_reduce_latency_us", 0, 1e6) * kMicro;
  profile.all_reduce_hop_latency_s = reader.value("all_reduce_hop_latency_us", 0, 1e6) * kMicro;
  profile.all_reduce_bus_bytes_per_s = reader.value("all_reduce_bus_gb_per_s", kTiny, 1e6) * kGiga;
  profile.gemm_measured = read_gemms(input);
  profile.shared = read_shared(input);
  profile.all_reduce_measured = read_measured(input, profile.gpus_per_node);
  profile.within_node = {reader.value("p2p_within_node_latency_us", 0, 1e6) * kMicro,
                         reader.value("p2p_within_node_gb_per_s", kTiny, 1e6) * kGiga};
  profile.between_nodes = {reader.value("p2p_between_nodes_latency_us", 0, 1e6) * kMicro,
                           reader.value("p2p_between_nodes_gb_per_s", kTiny, 1e6) * kGiga};
  profile.host_to_device_bytes_per_s = reader.value("host_to_device_gb_per_s", kTiny, 1e6) * kGiga;
  profile.device_to_host_bytes_per_s = reader.value("device_to_host_gb_per_s", kTiny, 1e6) * kGiga;
  profile.contention_compute = reader.value("contention_compute", kTiny, 1);
  profile.contention_all_reduce = reader.value("contention_all_reduce", kTiny, 1);
  if (input.has("receive_sms")) profile.receive_sms = reader.whole("receive_sms", 0, 64);
  if (!profile.fitted.empty() && profile.fitted_to.empty())
    throw input.error("fitted_to", "is missing, but values are marked as fitted",
                      "name the rows that they were fitted to");
  input.done();
  return profile;
}

double ring_share(int ranks) { return 2.0 * (ranks - 1) / ranks; }

namespace {

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
