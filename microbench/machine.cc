#include "machine.h"

#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include "stp/base/error.h"
#include "stp/cpu/cpu_backend.h"

namespace stp::microbench {
namespace {

constexpr int64_t kFlushBytes = int64_t{128} << 20;  // more than the caches hold
constexpr int64_t kProbe = 256;  // 33 million operations: a fraction of a millisecond on one core

}  // namespace

MachineKind find_machine(const std::string& backend) {
  if (backend != "cpu") throw InputError("", "--backend", "\"" + backend + "\" is not built in", "use cpu");
  const auto pages = static_cast<double>(sysconf(_SC_PHYS_PAGES));
  return {.backend = backend,
          .processors = std::max(1, static_cast<int>(std::thread::hardware_concurrency())),
          .memory_bytes = pages * static_cast<double>(sysconf(_SC_PAGE_SIZE))};
}

Machine::Machine(MachineKind kind, int ranks)
    : kind_(std::move(kind)), backend_(make_cpu_backend({.world_size = ranks})), ranks_(ranks) {
  std::vector<int> members(ranks);
  std::iota(members.begin(), members.end(), 0);
  for (int rank = 0; rank < ranks; ++rank) {
    Rank& here = ranks_[rank];
    here.compute = device(rank).make_stream("compute", StreamPriority::compute);
    here.communication = device(rank).make_stream("communication", StreamPriority::communication);
    here.group = backend_->communicator("all", members, rank);
    here.flag = make(rank, 1, 1);
    for (Tensor* tensor : {&here.a, &here.b, &here.c}) *tensor = make(rank, kProbe, kProbe);
  }
  made_.clear();  // these stay
  synchronize();
}

Machine::~Machine() = default;

Tensor Machine::make(int rank, DType type, int64_t rows, int64_t columns) {
  Tensor tensor = device(rank).allocate(compute(rank), MemoryKind::working, type, rows, columns);
  if (type != DType::i32) kernels(rank).fill(compute(rank), tensor, 0.01);
  made_.emplace_back(rank, tensor);
  return tensor;
}

void Machine::clear() {
  synchronize();
  for (auto& [rank, tensor] : made_) device(rank).release(compute(rank), tensor);
  made_.clear();
  synchronize();
}

void Machine::synchronize() {
  for (int rank = 0; rank < ranks(); ++rank) device(rank).synchronize();
}

Machine::Times Machine::time(const Work& compute, const Work& communicate) {
  struct Events {
    EventRef start, compute, communication;
  };
  std::vector<Events> events(ranks_.size());
  // No rank starts before all are awake.
  for (int rank = 0; rank < ranks(); ++rank) {
    Rank& here = ranks_[rank];
    here.communication->wait(here.compute->record());
    here.group->all_reduce(*here.communication, Reduce::sum, here.flag);
    events[rank].start = here.communication->record();
    here.compute->wait(events[rank].start);
  }
  for (int rank = 0; rank < ranks(); ++rank) {
    if (communicate) communicate(rank);
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

void Machine::flush_caches() {
  for (int rank = 0; rank < ranks(); ++rank) {
    Tensor& other = ranks_[rank].other_data;
    if (!other)
      other = device(rank).allocate(compute(rank), MemoryKind::working, DType::f32, 1, kFlushBytes / 4);
    kernels(rank).fill(compute(rank), other, 1);
  }
  synchronize();
}

double Machine::probe() {
  const auto product = [&](int rank) {
    Rank& here = ranks_[rank];
    kernels(rank).gemm(*here.compute, false, true, 1, here.a, here.b, 0, here.c);
  };
  return time(product, {}).compute;
}

}  // namespace stp::microbench
