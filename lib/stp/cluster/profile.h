// A hardware profile: rates and capacities of one accelerator and of the links between accelerators, read
// from JSON. Every value in the JSON has its source.
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

/// Measured all-reduces of one group size: seconds by message size, both increasing.
struct MeasuredAllReduce {
  struct Point {
    double bytes, seconds;
    bool operator==(const Point&) const = default;
  };
  int ranks;
  std::vector<Point> points;
  bool in_switch = false;  // the switch adds up (NVLS)
  bool operator==(const MeasuredAllReduce&) const = default;
};

/// A GEMM's measured time, with nothing else running.
struct MeasuredGemm {
  Gemm gemm;
  double seconds;
  bool operator==(const MeasuredGemm&) const = default;
};

/// Rates of a fused attention by length, for heads of 128 and as many heads as given; FLOPs of a causal mask
/// count half.
struct MeasuredAttention {
  struct Point {
    double seq;
    double causal_forward, causal_backward, full_forward, full_backward;  // FLOP/s
    bool operator==(const Point&) const = default;
  };
  int heads = 0;
  std::vector<Point> points;  // by increasing seq; empty: not measured
  bool operator==(const MeasuredAttention&) const = default;
};

/// Processors that all ranks of a machine share, such as a CPU's cores. A rate depends on the number of busy
/// processors and is relative to one busy processor. More workers than processors take turns.
struct SharedProcessors {
  std::vector<double> rates;  // [0]: one busy; empty: every rank has its own device
  bool operator==(const SharedProcessors&) const = default;
  [[nodiscard]] int count() const { return static_cast<int>(rates.size()); }
};

/// A value that is not exactly known, and the ends between which it lies.
struct UncertainValue {
  std::string name;
  double from, to;
};

struct HardwareProfile {
  std::string name;
  std::string accelerator;  // the vendor's name
  int gpus_per_node;
  int adapters_per_node;      // network adapters; one per GPU unless given
  double peak_flops;          // dense bf16
  int sms;                    // streaming multiprocessors
  double gemm_efficiency;     // share of the peak that large GEMMs reach
  double gemm_overhead_k;     // prologue and epilogue of an output tile, in steps of k
  double gemm_sustained = 1;  // share of that rate that the power limit leaves in long training,
                              // and of attention_cudnn's: it lowers the clock, which all share
  std::vector<MeasuredGemm> gemm_measured;  // if any, used instead of gemm_efficiency and gemm_overhead_k
  double attention_forward_efficiency, attention_backward_efficiency;  // share of the peak that many long
                                                                       // tiles reach
  double attention_tile_overhead = -1;  // of a tile, in steps along its other dimension; -1: unknown, the
                                        // efficiencies hold for any shape
  MeasuredAttention attention_cudnn;    // used instead by implementations with Transformer Engine, if any
  double memory_bytes_per_s;            // for elementwise kernels
  double memory_bytes;                  // capacity
  /// Context, communicators and workspaces, beside tensors, and the bounds of what is uncertain of them. A
  /// profile that says nothing has none, or as much as an H100 at most (profiles/h100.json).
  double fixed_memory_bytes = 0, least_fixed_memory_bytes = 0, most_fixed_memory_bytes = 9e9;
  double kernel_overhead_s;   // per launch on a busy stream
  double host_launch_s;       // the host's time per launch, with an implementation in Python; 0: unknown
  double elementwise_factor;  // memory traffic of unfused norms and residuals, relative to work.h (fitted if
                              // not measured)
  double elementwise_undivided;  // share of that traffic that sequence parallelism does not divide

  // All-reduces within a node: a ring's α-β for every group size without a measurement.
  double all_reduce_latency_s;        // per collective
  double all_reduce_hop_latency_s;    // per step of the ring; it has 2(n − 1) steps
  double all_reduce_bus_bytes_per_s;  // bus bandwidth, nccl-tests' definition
  std::vector<MeasuredAllReduce> all_reduce_measured;
  LinkProfile within_node, between_nodes;  // point to point, per GPU; between nodes, per adapter
  double host_to_device_bytes_per_s, device_to_host_bytes_per_s;
  double contention_compute, contention_all_reduce;  // share of speed alone while both run on one GPU
  int reduction_sms = 0;          // that reductions of gradients and gathers of weights take
  double batched_transfer_s = 0;  // the host waits for transfers in one group and has lost its lead
  double step_overhead_s = 0;     // of a step: the host waits for the device, and data
  double gpu_spread = 0;          // relative standard deviation of GPUs' speed; the slowest sets the pace
  int receive_sms;  // SMs of a receive that waits for another stage; 0: unknown, or included in other rates
  SharedProcessors shared;

  /// Names of the fitted values (neither measured nor specified), and the data of the fit.
  std::vector<std::string> fitted;
  std::string fitted_to;
  /// Names of the values that are not fitted here and whose source says "assumed", "carried over", or at its
  /// start "as on" or "as fitted on".
  std::vector<std::string> assumed;
  /// The values with a range; and the assumed ones without, between ends that depend on their kind.
  std::vector<UncertainValue> uncertain;
};

/// Reads a profile; errors name file and field. Every value but lists is {"value", "source"}. It may have a
/// "range" with a reason, and is refused outside it. Fitted values have "fitted": true and need a range.
HardwareProfile read_profile(const std::string& path);
/// Reads a profile from its content; errors name `file`.
HardwareProfile read_profile(const nlohmann::json& content, const std::string& file);

/// Bytes that each rank of a ring sends, and receives, per byte of the all-reduced tensor: 2(n − 1)/n.
double ring_share(int ranks);

/// Seconds of one all-reduce of `bytes` over n = `ranks` ranks of one node. With a measurement of that size:
/// its times, linear in bytes between two points, from the latency alone at 0 bytes, and beyond the last at
/// its bandwidth. Otherwise: latency + 2(n − 1) hops + bytes · 2(n − 1)/n / bus bandwidth.
double all_reduce_seconds(const HardwareProfile& profile, double bytes, int ranks);

/// The same for a reduce-scatter from, or an all-gather to, `bytes`: half an all-reduce's steps and volume,
/// with its own latency. All bytes pass each GPU's links in one direction, so a switch that adds up saves
/// nothing: with a measurement of such a switch, the time is at least that without a measurement.
double half_all_reduce_seconds(const HardwareProfile& profile, double bytes, int ranks);

/// Seconds of one transfer.
double transfer_seconds(const LinkProfile& link, double bytes);

}  // namespace stp
