#include "speed_probe.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>

namespace stp {
namespace {

constexpr int64_t kSize = 384;  // 113 million operations: about a millisecond of one core
constexpr int kRepeats = 12;

// The busy time of all processors together.
double busy_seconds() {
  std::ifstream file("/proc/stat");
  std::string word;
  file >> word;  // cpu
  double busy = 0, value = 0;
  for (int column = 0; column < 8 && file >> value; ++column)
    if (column != 3 && column != 4) busy += value;  // idle, and idle for a disk
  return busy / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double own_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

OtherPrograms::OtherPrograms() : busy_(busy_seconds()), own_(own_seconds()), start_(now()) {}

double OtherPrograms::share() const {
  const double others = (busy_seconds() - busy_) - (own_seconds() - own_);
  const double all = (now() - start_) * std::max(1U, std::thread::hardware_concurrency());
  return std::clamp(others / all, 0.0, 1.0);
}

SpeedProbe::SpeedProbe(std::unique_ptr<Backend> backend, double rate)
    : backend_(std::move(backend)), ranks_(backend_->world_size()), rate_(rate) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    Device& device = backend_->device(static_cast<int>(rank));
    Rank& here = ranks_[rank];
    here.stream = device.make_stream("probe", StreamPriority::compute);
    for (Tensor* tensor : {&here.a, &here.b, &here.c}) {
      *tensor = device.allocate(*here.stream, MemoryKind::working, DType::f32, kSize, kSize);
      device.kernels().issue(*here.stream, kernel::Fill{.tensor = *tensor, .value = 0.01});
    }
  }
  time_gemms(static_cast<int>(ranks_.size()));  // touches all pages
}

double SpeedProbe::time_gemms(int count) {
  std::vector<EventRef> starts, ends;
  for (int rank = 0; rank < count; ++rank) {
    Rank& here = ranks_[rank];
    starts.push_back(here.stream->record());
    for (int repeat = 0; repeat < kRepeats; ++repeat)
      backend_->device(rank).kernels().issue(
          *here.stream, kernel::Gemm{.transpose_b = true, .a = here.a, .b = here.b, .c = here.c});
    ends.push_back(here.stream->record());
  }
  double slowest = 0;
  for (int rank = 0; rank < count; ++rank) {
    backend_->device(rank).synchronize();
    slowest = std::max(slowest, ends[rank]->seconds() - starts[rank]->seconds());
  }
  return slowest;
}

bool SpeedProbe::steady() {
  const double alone = time_gemms(1);
  fastest_ = fastest_ == 0 ? alone : std::min(fastest_, alone);
  return time_gemms(static_cast<int>(ranks_.size())) <= kDisturbed * fastest_ / rate_;
}

}  // namespace stp
