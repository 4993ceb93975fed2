// A hardware profile: rates and capacities of one accelerator and of the links between accelerators, read
// from JSON, where every value has its source.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "stp/model/work.h"

namespace stp {

struct LinkProfile {
  double latency_s;
  double bytes_per_s;
  bool operator==(const LinkProfile&) const = default;
};

/// All-reduces of one group size, as measured: seconds by message size, both increasing.
struct MeasuredAllReduce {
  struct Point {
    double bytes, seconds;
    bool operator==(const Point&) const = default;
  };
  int ranks;
  std::vector<Point> points;
  bool in_switch = false;  // whether the switch adds up (NVLS)
  bool operator==(const MeasuredAllReduce&) const = default;
};

/// A GEMM as measured, with nothing else running.
struct MeasuredGemm {
  Gemm gemm;
  double seconds;
  bool operator==(const MeasuredGemm&) const = default;
};

/// Processors that all ranks of a machine share, such as the cores of a CPU. Their rates depend on how many
/// are busy and are relative to one busy alone. More workers than processors take turns.
struct SharedProcessors {
  std::vector<double> rates;  // [0]: one busy; empty: every rank has a device of its own
  bool operator==(const SharedProcessors&) const = default;
  [[nodiscard]] int count() const { return static_cast<int>(rates.size()); }
};

struct HardwareProfile {
  std::string name;
  std::string accelerator;  // as vendors write it
  int gpus_per_node;
  int adapters_per_node;                    // of the network; one per GPU unless given
  double peak_flops;                        // dense bf16
  int sms;                                  // streaming multiprocessors
  double gemm_efficiency;                   // share of the peak that large GEMMs reach
  double gemm_overhead_k;                   // prologue and epilogue of an output tile, in steps of k
  std::vector<MeasuredGemm> gemm_measured;  // if any, used in place of the two above
  double attention_forward_efficiency, attention_backward_efficiency;  // share of the peak that many long
                                                                       // tiles reach
  double attention_tile_overhead = -1;  // of a tile, in steps along its other dimension; -1: not known, and
                                        // the efficiencies are those of any shape
  double memory_bytes_per_s;            // as elementwise kernels reach it
  double memory_bytes;                  // capacity
  double kernel_overhead_s;             // per launch on a busy stream
  double host_launch_s;       // of the host per launch, with an implementation in Python; 0: not known
  double elementwise_factor;  // memory traffic of unfused norms and residuals over what work.h counts (fitted
                              // where not measured)
  double elementwise_undivided;  // share of that traffic which sequence parallelism does not divide

  // All-reduces within a node: a ring's α-β for every group size that has no measurement of its own.
  double all_reduce_latency_s;        // per collective
  double all_reduce_hop_latency_s;    // per step of the ring, of which there are 2(n − 1)
  double all_reduce_bus_bytes_per_s;  // bus bandwidth, nccl-tests' definition
  std::vector<MeasuredAllReduce> all_reduce_measured;
  LinkProfile within_node, between_nodes;  // point to point, per GPU; between nodes, per adapter
  double host_to_device_bytes_per_s, device_to_host_bytes_per_s;
  double contention_compute, contention_all_reduce;  // share of the speed alone while both run on one GPU
  int receive_sms;  // held by a receive that waits for another stage; 0: unknown, or in the other rates
  SharedProcessors shared;

  /// Names of the values that were fitted, not measured or specified, and to what.
  std::vector<std::string> fitted;
  std::string fitted_to;
  /// Names of the values that have a range.
  std::vector<std::string> ranged;
};

/// Reads a profile; errors name file and field. Every value but lists is {"value", "source"}, any may have a
/// "range" with its reason, outside which it is refused; fitted ones have "fitted": true and must have one.
HardwareProfile read_profile(const std::string& path);
/// The same of its content; `file` is named in errors.
HardwareProfile read_profile(const nlohmann::json& content, const std::string& file);

/// Bytes that each rank of a ring sends, and receives, per byte of the tensor in an all-reduce: 2(n − 1)/n.
double ring_share(int ranks);

/// Seconds of one all-reduce of `bytes` over n = `ranks` ranks of one node. With a measurement of that group
/// size: its times, linear in bytes between two sizes, from the latency alone at no bytes, and beyond the
/// last at its bandwidth. Without: latency + 2(n − 1) hops + bytes · 2(n − 1)/n / bus bandwidth.
double all_reduce_seconds(const HardwareProfile& profile, double bytes, int ranks);

/// The same of a reduce-scatter, or of an all-gather, to or from `bytes`: half an all-reduce's steps and
/// volume, but a latency of its own. All of it passes each GPU's links in one direction, so that a switch
/// that adds up saves nothing: where the measurement is of one, no less than without a measurement.
double half_all_reduce_seconds(const HardwareProfile& profile, double bytes, int ranks);

/// Seconds of one transfer.
double transfer_seconds(const LinkProfile& link, double bytes);

}  // namespace stp
