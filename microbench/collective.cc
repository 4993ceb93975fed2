// collective: all-reduce, all-gather, reduce-scatter and send/receive among ranks, uploads and downloads.
// Counters are nccl-tests' columns: size in bytes, count of elements, algbw = size / time and busbw = algbw ·
// factor in decimal GB/s, type and redop the row's label; the factor is 2(n−1)/n of an all-reduce, (n−1)/n of
// the other two, 1 of a transfer.
#include "suite.h"

namespace stp::microbench {
namespace {

enum class Call { all_reduce, all_gather, reduce_scatter, send_receive };

const char* name_of(Call call) {
  switch (call) {
    case Call::all_reduce:
      return "all_reduce";
    case Call::all_gather:
      return "all_gather";
    case Call::reduce_scatter:
      return "reduce_scatter";
    case Call::send_receive:
      return "send_receive";
  }
  return "";
}

bool reduces(Call call) { return call == Call::all_reduce || call == Call::reduce_scatter; }

// As nccl-tests calls them.
std::string type_name(DType type) {
  return type == DType::bf16 ? "bfloat16" : type == DType::f64 ? "double" : "float";
}

double bus_factor(Call call, int n) {
  switch (call) {
    case Call::all_reduce:
      return 2.0 * (n - 1) / n;
    case Call::all_gather:
    case Call::reduce_scatter:
      return 1.0 * (n - 1) / n;
    case Call::send_receive:
      return 1;
  }
  return 1;
}

// On the communication streams of all ranks.
class CollectiveWork : public Prepared {
 public:
  CollectiveWork(Machine& machine, Call call, double bytes) : machine_(machine), call_(call), bytes_(bytes) {
    const int n = machine.world();
    const auto rows = static_cast<int64_t>(bytes) / element_bytes() / (call == Call::send_receive ? 1 : n);
    for (int rank = 0; rank < machine.ranks(); ++rank) {
      whole_.push_back(machine.make(rank, call == Call::send_receive ? rows : n * rows, 1));
      piece_.push_back(machine.make(rank, rows, 1));
    }
  }
  double sample(int calls) override {
    return machine_
               .time({},
                     [&](int rank) {
                       for (int call = 0; call < calls; ++call) issue(rank);
                     })
               .communication /
           calls;
  }
  [[nodiscard]] std::map<std::string, double> counters(double seconds) const override {
    const double algbw = bytes_ / seconds / 1e9;
    return {{"size", bytes_},
            {"count", bytes_ / static_cast<double>(element_bytes())},
            {"time_us", 1e6 * seconds},
            {"algbw", algbw},
            {"busbw", algbw * bus_factor(call_, machine_.world())}};
  }

 private:
  [[nodiscard]] int64_t element_bytes() const { return static_cast<int64_t>(bytes_of(machine_.type())); }
  void issue(int rank) {
    Communicator& group = machine_.group(rank);
    Stream& stream = machine_.communication(rank);
    switch (call_) {
      case Call::all_reduce:
        return group.all_reduce(stream, Reduce::sum, whole_[rank]);
      case Call::all_gather:
        return group.all_gather(stream, piece_[rank], whole_[rank]);
      case Call::reduce_scatter:
        return group.reduce_scatter(stream, whole_[rank], piece_[rank]);
      case Call::send_receive:
        if (machine_.world_rank(rank) == 0) group.send(stream, whole_[rank], 1);
        if (machine_.world_rank(rank) == 1) group.receive(stream, whole_[rank], 0);
        return;
    }
  }

  Machine& machine_;
  const Call call_;
  const double bytes_;
  std::vector<Tensor> whole_, piece_;
};

// Between the host's memory and the device's.
class HostCopy : public Prepared {
 public:
  HostCopy(Machine& machine, bool up, size_t bytes)
      : machine_(machine),
        up_(up),
        host_(bytes),
        tensor_(machine.make(0, DType::f32, static_cast<int64_t>(bytes / 4), 1)) {}
  double sample(int calls) override {
    const EventRef start = machine_.compute(0).record();
    for (int call = 0; call < calls; ++call) {
      if (up_) {
        machine_.device(0).upload(machine_.compute(0), tensor_, host_);
      } else {
        machine_.device(0).download(machine_.compute(0), tensor_, host_);
      }
    }
    const EventRef end = machine_.compute(0).record();
    machine_.synchronize();
    return (end->seconds() - start->seconds()) / calls;
  }
  [[nodiscard]] std::map<std::string, double> counters(double seconds) const override {
    const auto bytes = static_cast<double>(host_.size());
    return {{"size", bytes}, {"time_us", 1e6 * seconds}, {"algbw", bytes / seconds / 1e9}};
  }

 private:
  Machine& machine_;
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
    for (const Call call : {Call::all_reduce, Call::all_gather, Call::reduce_scatter, Call::send_receive}) {
      if (call == Call::send_receive && ranks != 2) continue;
      for (const double bytes : sizes)
        suite.add({.name = std::string("collective/") + name_of(call) + "/ranks:" + std::to_string(ranks) +
                           "/size:" + std::to_string(static_cast<int64_t>(bytes)),
                   .on = {.ranks = ranks},
                   .bytes = 2 * ranks * bytes,
                   .prepare =
                       [call, bytes](Machine& machine) {
                         return std::make_unique<CollectiveWork>(machine, call, bytes);
                       },
                   .label = type_name(options.machine.type) + (reduces(call) ? " sum" : " none")});
    }
  if (options.machine.processes != nullptr) return;  // what one process measures alone
  for (const bool up : {true, false})
    for (const size_t bytes : {size_t{1} << 16, size_t{1} << 24})
      suite.add({.name = std::string("collective/") + (up ? "upload" : "download") +
                         "/size:" + std::to_string(bytes),
                 .bytes = 2.0 * static_cast<double>(bytes),
                 .prepare = [up, bytes](Machine& machine) {
                   return std::make_unique<HostCopy>(machine, up, bytes);
                 }});
}

}  // namespace stp::microbench
