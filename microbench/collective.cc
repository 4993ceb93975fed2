// collective: all-reduce, all-gather, reduce-scatter and send/receive among ranks, uploads and downloads.
// Counters are nccl-tests' columns: size in bytes, count of elements, algbw = size / time and busbw = algbw ·
// factor in decimal GB/s; type and redop are in the row's label. The factor is 2(n−1)/n for an all-reduce,
// (n−1)/n for all-gather and reduce-scatter, 1 for a transfer.
#include <algorithm>

#include "suite.h"

namespace stp::microbench {
namespace {

// Names of rows.
std::string name_of(CallKind kind) {
  if (kind == CallKind::transfer) return "send_receive";
  std::string name = to_string(kind);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

bool reduces(CallKind kind) { return kind == CallKind::all_reduce || kind == CallKind::reduce_scatter; }

// Names in nccl-tests.
std::string type_name(DType type) {
  return type == DType::bf16 ? "bfloat16" : type == DType::f64 ? "double" : "float";
}

// Collectives on the communication streams of all ranks.
Fixture collective(BenchEnv& env, CallKind kind, double bytes) {
  const auto element_bytes = static_cast<int64_t>(bytes_of(env.type()));
  const int n = kind == CallKind::transfer ? 1 : env.world();
  const auto rows = static_cast<int64_t>(bytes) / element_bytes / n;
  std::vector<Tensor> whole, piece;
  for (int rank = 0; rank < env.ranks(); ++rank) {
    whole.push_back(env.make(rank, n * rows, 1));
    piece.push_back(env.make(rank, rows, 1));
  }
  const auto ends_of_transfer = [=, &env] {
    std::vector<Part> parts = env.parts(whole, whole);
    for (int rank = 0; rank < env.ranks(); ++rank)
      (env.world_rank(rank) == 0 ? parts[rank].out : parts[rank].in) = {};
    return parts;
  };
  const auto issue = [=, &env] {
    Group& group = env.group(kind);
    switch (kind) {
      case CallKind::all_reduce:
        return group.all_reduce(Reduce::sum, env.parts(whole, whole));
      case CallKind::all_gather:
        return group.all_gather(env.parts(piece, whole));
      case CallKind::reduce_scatter:
        return group.reduce_scatter(env.parts(whole, piece));
      case CallKind::all_to_all:
        break;  // not measured
      case CallKind::transfer:
        return group.transfer(ends_of_transfer());
    }
  };
  const auto sample = [=, &env](int calls) {
    const BenchEnv::Exchange repeated = [&] {
      for (int call = 0; call < calls; ++call) issue();
    };
    return env.time({}, repeated, calls).communication / calls;
  };
  const double others = static_cast<double>(env.world() - 1) / env.world();
  const double factor = kind == CallKind::transfer ? 1 : kind == CallKind::all_reduce ? 2 * others : others;
  return {sample, [=](double seconds) -> Counters {
            const double algbw = bytes / seconds / 1e9;
            return {{"size", bytes},
                    {"count", bytes / static_cast<double>(element_bytes)},
                    {"time_us", 1e6 * seconds},
                    {"algbw", algbw},
                    {"busbw", algbw * factor}};
          }};
}

// Copies between host memory and device memory.
Fixture host_copy(BenchEnv& env, bool up, size_t bytes) {
  const auto host = std::make_shared<std::vector<std::byte>>(bytes);
  const Tensor tensor = env.make(0, DType::f32, static_cast<int64_t>(bytes / 4), 1);
  const auto copy = [=, &env] {
    if (up)
      env.device(0).upload(env.compute(0), tensor, *host);
    else
      env.device(0).download(env.compute(0), tensor, *host);
  };
  return {[=, &env](int calls) { return env.time_calls(calls, copy); },
          [size = static_cast<double>(bytes)](double seconds) -> Counters {
            return {{"size", size}, {"time_us", 1e6 * seconds}, {"algbw", size / seconds / 1e9}};
          }};
}

}  // namespace

void add_collective(Suite& suite) {
  const Options& options = suite.options();
  std::vector<double> sizes{1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22};
  if (!options.quick) sizes.insert(sizes.end(), {1 << 16, 1 << 24, 1 << 26});
  for (const int ranks : options.ranks)
    for (const CallKind kind :
         {CallKind::all_reduce, CallKind::all_gather, CallKind::reduce_scatter, CallKind::transfer}) {
      if (kind == CallKind::transfer && ranks != 2) continue;
      for (const double bytes : sizes)
        suite.add({.name = std::string("collective/") + name_of(kind) + "/ranks:" + std::to_string(ranks) +
                           "/size:" + std::to_string(static_cast<int64_t>(bytes)),
                   .on = {.ranks = ranks},
                   .bytes = 2 * ranks * bytes,
                   .prepare = [kind, bytes](BenchEnv& env) { return collective(env, kind, bytes); },
                   .label = type_name(options.machine.type) + (reduces(kind) ? " sum" : " none")});
    }
  if (options.machine.has_others()) return;  // one process alone measures them
  for (const bool up : {true, false})
    for (const size_t bytes : {size_t{1} << 16, size_t{1} << 24})
      suite.add({.name = std::string("collective/") + (up ? "upload" : "download") +
                         "/size:" + std::to_string(bytes),
                 .bytes = 2.0 * static_cast<double>(bytes),
                 .prepare = [up, bytes](BenchEnv& env) { return host_copy(env, up, bytes); }});
}

}  // namespace stp::microbench
