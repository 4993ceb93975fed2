#include "machine.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

#include "stp/backends/backends.h"
#include "stp/runtime/call_times.h"

namespace stp::microbench {
namespace {

constexpr int64_t kFlushBytes = int64_t{128} << 20;  // more than the caches hold
// Size of the probe's GEMM. A core has 33 million operations, a fraction of a millisecond; a device needs a
// larger GEMM.
constexpr int64_t kProbeOfCore = 256, kProbeOfDevice = 4096;

std::unique_ptr<Backend> make_ranks(const MachineSpec& spec, const Arrangement& arrangement) {
  BackendOptions options;
  options.world_size = arrangement.ranks;
  options.gemm = {.time_candidates = arrangement.fastest_gemms,
                  .multiprocessors = arrangement.gemm_multiprocessors};
  if (spec.has_others() || !spec.peers || arrangement.ranks == 1)
    return make_backend(spec.backend, options, spec.processes);
  Replay replay{.rank = 0, .times = call_times(*spec.peers)};
  if (arrangement.communication_ctas > 0)
    replay.collective_ctas = replay.most_ctas = arrangement.communication_ctas;
  return make_replay_backend(spec.backend, options, replay);
}

constexpr int64_t kPeriod = 65521;  // a prime, so that no two rows are alike

}  // namespace

MachineSpec find_machine(const std::string& backend, int device) {
  const BuiltIn& kind = built_in(backend);
  kind.check(device);
  const bool shared = kind.ranks == 0;
  return {.backend = backend,
          .processors = shared ? std::max(1, static_cast<int>(std::thread::hardware_concurrency())) : 0,
          .memory_bytes = kind.memory(),
          .type = kind.types.front()};
}

BenchEnv::BenchEnv(MachineSpec spec, const Arrangement& arrangement)
    : spec_(std::move(spec)),
      world_(arrangement.ranks),
      backend_(make_ranks(spec_, arrangement)),
      ranks_(backend_->ranks().size()) {
  std::vector<int> members(world_);
  std::iota(members.begin(), members.end(), 0);
  const int64_t probe = spec_.processors > 0 ? kProbeOfCore : kProbeOfDevice;
  for (int rank = 0; rank < ranks(); ++rank) {
    Rank& here = ranks_[rank];
    here.compute = device(rank).make_stream("compute", StreamPriority::compute);
    here.communication = device(rank).make_stream("communication", arrangement.communication_priority
                                                                       ? StreamPriority::communication
                                                                       : StreamPriority::compute);
    flags_.push_back(make(rank, DType::f32, 1, 1));
    for (Tensor* tensor : {&here.a, &here.b, &here.c}) *tensor = make(rank, probe, probe);
  }
  group_ = backend_->group("all", members);
  transfers_ = backend_->group("p2p", members, GroupUse::transfers);
  made_.clear();  // keep these
  synchronize();
}

BenchEnv::~BenchEnv() = default;

Tensor BenchEnv::make(int rank, DType type, int64_t rows, int64_t columns) {
  Tensor tensor = device(rank).allocate(compute(rank), MemoryKind::working, type, rows, columns);
  if (type != DType::i32) fill(rank, tensor);
  made_.emplace_back(rank, tensor);
  return tensor;
}

// Random numbers from −1 to 1; statistics (maxima, sums, variances), of another type, from 0 on. The device
// repeats the first kPeriod, twice as often with each copy: a host would take seconds for a large tensor.
void BenchEnv::fill(int rank, const Tensor& tensor) {
  std::mt19937 random{1};
  std::uniform_real_distribution<float> uniform(tensor.type == spec_.type ? -1.0F : 0.0F, 1);
  std::vector<double> pattern(kPeriod);
  for (double& value : pattern) value = uniform(random);
  upload_doubles(device(rank), compute(rank), tensor.part(0, 1, std::min(kPeriod, tensor.elements())),
                 pattern);
  const int64_t all = tensor.elements();
  for (int64_t done = kPeriod; done < all; done *= 2) {
    TensorView from = tensor;
    from.rows = 1;
    from.columns = std::min(done, all - done);
    TensorView to = from;
    to.at += static_cast<size_t>(done) * bytes_of(tensor.type);
    kernels(rank).issue(compute(rank), kernel::Copy{from, to});
  }
}

void BenchEnv::clear() {
  synchronize();
  for (auto& [rank, tensor] : made_) device(rank).release(compute(rank), tensor);
  made_.clear();
  synchronize();
}

void BenchEnv::synchronize() {
  for (int rank = 0; rank < ranks(); ++rank) device(rank).synchronize();
}

std::vector<Part> BenchEnv::parts(const std::vector<Tensor>& in, const std::vector<Tensor>& out) const {
  std::vector<Part> parts;
  for (size_t rank = 0; rank < ranks_.size(); ++rank)
    parts.push_back({ranks_[rank].communication.get(), rank < in.size() ? in[rank] : Tensor(),
                     rank < out.size() ? out[rank] : Tensor()});
  return parts;
}

BenchEnv::Times BenchEnv::time(const Work& compute, const Exchange& communicate, int calls) {
  struct Events {
    EventRef start, compute, communication;
  };
  std::vector<Events> events(ranks_.size());
  hold_back(calls);
  // No rank starts before all are awake.
  for (const Rank& here : ranks_) here.communication->wait(here.compute->record());
  group_->all_reduce(Reduce::sum, parts(flags_, flags_));
  for (int rank = 0; rank < ranks(); ++rank) {
    events[rank].start = communication(rank).record();
    this->compute(rank).wait(events[rank].start);
  }
  if (communicate) communicate();
  for (int rank = 0; rank < ranks(); ++rank) {
    events[rank].communication = this->communication(rank).record();
    if (compute) compute(rank);
    events[rank].compute = this->compute(rank).record();
  }
  synchronize();
  double start = 0;
  Times end;
  for (const Events& each : events) {
    start = std::max(start, each.start->seconds());
    end.compute = std::max(end.compute, each.compute->seconds());
    end.communication = std::max(end.communication, each.communication->seconds());
  }
  return {end.compute - start, end.communication - start};
}

double BenchEnv::time_calls(int calls, const std::function<void()>& call) {
  const EventRef start = compute(0).record();
  for (int i = 0; i < calls; ++i) call();
  const EventRef end = compute(0).record();
  synchronize();
  return (end->seconds() - start->seconds()) / calls;
}

// Delays the device while the host issues the timed calls, so that their kernels do not wait for it. The
// pause leaves memory and caches alone.
void BenchEnv::hold_back(int calls) {
  constexpr double kBarrier = 100e-6, kCall = 10e-6;  // what the host takes, with a margin
  for (int rank = 0; rank < ranks(); ++rank)
    device(rank).pause(compute(rank), kBarrier + calls * ranks() * kCall);
}

Tensor& BenchEnv::other_data(int rank) {
  Tensor& other = ranks_[rank].other_data;
  if (!other)
    other = device(rank).allocate(compute(rank), MemoryKind::working, DType::f32, 1, kFlushBytes / 4);
  return other;
}

void BenchEnv::flush_caches() {
  for (int rank = 0; rank < ranks(); ++rank)
    kernels(rank).issue(compute(rank), kernel::Fill{.tensor = other_data(rank), .value = 1});
  synchronize();
}

double BenchEnv::probe() {
  const auto gemm = [&](int rank) {
    Rank& here = ranks_[rank];
    kernels(rank).issue(*here.compute,
                        kernel::Gemm{.transpose_b = true, .a = here.a, .b = here.b, .c = here.c});
  };
  return time(gemm, {}, 1).compute;
}

}  // namespace stp::microbench
