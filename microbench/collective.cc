// collective: all-reduce, all-gather, reduce-scatter and send/receive among ranks, uploads and downloads.
// Counters are nccl-tests' columns: size in bytes, count of elements, algbw = size / time and busbw = algbw ·
// factor in decimal GB/s; type and redop are in the row's label. The factor is 2(n−1)/n for an all-reduce,
// (n−1)/n for all-gather and reduce-scatter, 1 for a transfer.
#include <algorithm>

#include "stp/emulation/link_emulation.h"
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
class CollectiveWork : public Fixture {
 public:
  CollectiveWork(BenchEnv& env, CallKind kind, double bytes) : env_(env), kind_(kind), bytes_(bytes) {
    const int n = env.world();
    const auto rows = static_cast<int64_t>(bytes) / element_bytes() / (kind == CallKind::transfer ? 1 : n);
    for (int rank = 0; rank < env.ranks(); ++rank) {
      whole_.push_back(env.make(rank, kind == CallKind::transfer ? rows : n * rows, 1));
      piece_.push_back(env.make(rank, rows, 1));
    }
  }
  double sample(int calls) override {
    return env_.time({},
                     [&] {
                       for (int call = 0; call < calls; ++call) issue();
                     })
               .communication /
           calls;
  }
  [[nodiscard]] Counters counters(double seconds) const override {
    const double algbw = bytes_ / seconds / 1e9;
    return {{"size", bytes_},
            {"count", bytes_ / static_cast<double>(element_bytes())},
            {"time_us", 1e6 * seconds},
            {"algbw", algbw},
            {"busbw", algbw * link_share(kind_, env_.world())}};
  }

 private:
  [[nodiscard]] int64_t element_bytes() const { return static_cast<int64_t>(bytes_of(env_.type())); }
  void issue() {
    Group& group = env_.group();
    switch (kind_) {
      case CallKind::all_reduce:
        return group.all_reduce(Reduce::sum, env_.parts(whole_, whole_));
      case CallKind::all_gather:
        return group.all_gather(env_.parts(piece_, whole_));
      case CallKind::reduce_scatter:
        return group.reduce_scatter(env_.parts(whole_, piece_));
      case CallKind::all_to_all:
        break;  // not measured
      case CallKind::transfer:
        return group.transfer(ends_of_transfer());
    }
  }
  [[nodiscard]] std::vector<Part> ends_of_transfer() const {
    std::vector<Part> parts = env_.parts(whole_, whole_);
    for (int rank = 0; rank < env_.ranks(); ++rank)
      (env_.world_rank(rank) == 0 ? parts[rank].out : parts[rank].in) = {};
    return parts;
  }

  BenchEnv& env_;
  const CallKind kind_;
  const double bytes_;
  std::vector<Tensor> whole_, piece_;
};

// Copies between host memory and device memory.
class HostCopy : public Fixture {
 public:
  HostCopy(BenchEnv& env, bool up, size_t bytes)
      : env_(env),
        up_(up),
        host_(bytes),
        tensor_(env.make(0, DType::f32, static_cast<int64_t>(bytes / 4), 1)) {}
  double sample(int calls) override {
    const EventRef start = env_.compute(0).record();
    for (int call = 0; call < calls; ++call) {
      if (up_) {
        env_.device(0).upload(env_.compute(0), tensor_, host_);
      } else {
        env_.device(0).download(env_.compute(0), tensor_, host_);
      }
    }
    const EventRef end = env_.compute(0).record();
    env_.synchronize();
    return (end->seconds() - start->seconds()) / calls;
  }
  [[nodiscard]] Counters counters(double seconds) const override {
    const auto bytes = static_cast<double>(host_.size());
    return {{"size", bytes}, {"time_us", 1e6 * seconds}, {"algbw", bytes / seconds / 1e9}};
  }

 private:
  BenchEnv& env_;
  const bool up_;
  std::vector<std::byte> host_;
  Tensor tensor_;
};

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
        suite.add(
            {.name = std::string("collective/") + name_of(kind) + "/ranks:" + std::to_string(ranks) +
                     "/size:" + std::to_string(static_cast<int64_t>(bytes)),
             .on = {.ranks = ranks},
             .bytes = 2 * ranks * bytes,
             .prepare = [kind,
                         bytes](BenchEnv& env) { return std::make_unique<CollectiveWork>(env, kind, bytes); },
             .label = type_name(options.machine.type) + (reduces(kind) ? " sum" : " none")});
    }
  if (options.machine.has_others()) return;  // one process alone measures them
  for (const bool up : {true, false})
    for (const size_t bytes : {size_t{1} << 16, size_t{1} << 24})
      suite.add(
          {.name =
               std::string("collective/") + (up ? "upload" : "download") + "/size:" + std::to_string(bytes),
           .bytes = 2.0 * static_cast<double>(bytes),
           .prepare = [up, bytes](BenchEnv& env) { return std::make_unique<HostCopy>(env, up, bytes); }});
}

}  // namespace stp::microbench
