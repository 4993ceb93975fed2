// What one process of a run has, with groups over NCCL: its GPU, and its groups.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stp/cuda/cuda_device.h"
#include "stp/cuda/nccl/nccl_groups.h"
#include "stp/processes/processes.h"

namespace stp::testing_support {

using namespace cuda;

struct NcclProcess {
  NcclProcess(Processes& all, double deadline_s, NcclOptions options = {})
      : processes(all), run(deadline_s), device(run, all.index(), {.poison = true}) {
    run.describe_with([](int, uint32_t op) { return "F0." + std::to_string(op); });
    groups.emplace(run, all, std::move(options));
  }

  [[nodiscard]] int rank() const { return processes.index(); }
  std::unique_ptr<Stream> stream(const std::string& name) {
    return device.make_stream(name, StreamPriority::communication);
  }
  Tensor tensor(Stream& on, DType type, int64_t rows, int64_t columns, double value) {
    Tensor made = device.allocate(on, MemoryKind::communication, type, rows, columns);
    device.kernels().issue(on, kernel::Fill{made, value});
    return made;
  }
  std::vector<float> floats(Stream& on, const Tensor& tensor) { return download<float>(device, on, tensor); }
  std::unique_ptr<Group> group(const std::string& name, const std::vector<int>& members,
                               GroupUse use = GroupUse::collectives) {
    return groups->make_group(name, members, use);
  }

  Processes& processes;
  CudaRun run;
  CudaDevice device;
  std::optional<NcclGroups> groups;  // they end before their device
};

/// This process's part of a call.
inline std::vector<Part> part(Stream& stream, const Tensor& in, const Tensor& out) {
  return {{&stream, in, out}};
}
inline std::vector<Part> part(Stream& stream, const Tensor& both) { return part(stream, both, both); }

}  // namespace stp::testing_support
