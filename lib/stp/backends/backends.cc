#include "stp/backends/backends.h"

#include <unistd.h>

#include <limits>

#include "stp/base/json_input.h"
#include "stp/cpu/cpu_backend.h"
#include "stp/device/self_check.h"
#include "stp/emulated/emulated_backend.h"
#ifdef STP_HAVE_CUDA
#include "stp/cuda/cuda_backend.h"
#include "stp/cuda/examine.h"
#endif
#ifdef STP_HAVE_NCCL
#include "stp/cuda/nccl/nccl_backend.h"
#endif

namespace stp {
namespace {

double memory_of_machine() {
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
}

#ifdef STP_HAVE_CUDA
#ifdef STP_HAVE_CUDNN_FRONTEND
constexpr bool kCudnn = true;
#else
constexpr bool kCudnn = false;
#endif
#ifdef STP_HAVE_NCCL
constexpr bool kNccl = true;
void check_nccl(const std::vector<std::string>& nccl) { cuda::prepare_for_nccl(nccl); }
std::unique_ptr<Backend> one_gpu_of_several(const BackendOptions& options, Processes& processes) {
  return cuda::make_nccl_backend(options, processes);
}
#else
constexpr bool kNccl = false;
void check_nccl(const std::vector<std::string>&) {
  throw InputError("", "--backend", "this build has no NCCL, which processes need to exchange data",
                   "build where nccl.h is found, or start one process");
}
std::unique_ptr<Backend> one_gpu_of_several(const BackendOptions& options, Processes&) {
  check_nccl(options.nccl);
  return nullptr;
}
#endif
#endif

}  // namespace

const std::vector<BuiltIn>& built_in_backends() {
  static const std::vector<BuiltIn> all{
      {.name = "cpu",
       .types = {DType::f32, DType::f64, DType::bf16},
       .vision = true,
       .memory = memory_of_machine,
       .make = [](const BackendOptions& options, Processes* of_run,
                  int) { return cpu::make_backend(options, of_run); },
       .replay = cpu::make_replay_backend},
      {.name = "emulated",
       .types = {DType::f32},
       .emulates = true,
       .vision = true,
       .memory = [] { return std::numeric_limits<double>::infinity(); },
       .make = [](const BackendOptions& options, Processes* of_run,
                  int) { return emulated::make_backend(options, of_run); },
       .replay = [](const BackendOptions&, const Replay&) -> std::unique_ptr<Backend> {
         throw InputError("", "--backend", "is emulated, which replays no real kernels", "use another");
       }},
#ifdef STP_HAVE_CUDA
      {.name = "cuda",
       .types = {DType::bf16, DType::f32},
       .ranks = 1,
       .graphs = true,
       .libraries = {{"cuDNN", kCudnn}, {"NCCL", kNccl}},
       .check = [](int device) { cuda::check_gpu(cuda::gpu_of(device)); },
       .memory = [] { return cuda::gpu_memory(); },
       .facts = [] { return cuda::gpu_and_library_facts(); },
       .examine = [](int device) { return cuda::examine(cuda::gpu_of(device)); },
       .make =
           [](const BackendOptions& options, Processes* of_run, int device) {
             return of_run != nullptr ? one_gpu_of_several(options, *of_run)
                                      : cuda::make_backend(options, cuda::gpu_of(device));
           },
       .replay = cuda::make_replay_backend,
       .check_processes = check_nccl},
#endif
  };
  return all;
}

const BuiltIn& built_in(const std::string& name) {
  std::vector<std::string> names;
  for (const BuiltIn& each : built_in_backends()) {
    if (each.name == name) return each;
    names.push_back(each.name);
  }
  const std::string all = joined(names, {}, " or ");
  if (name == "cuda")
    throw InputError("", "--backend", "this build has no CUDA backend",
                     "build where nvcc is found, or use " + all);
  throw InputError("", "--backend", "\"" + name + "\" is not built in",
                   did_you_mean(name, names) + "use " + all);
}

std::vector<Finding> examine(const BuiltIn& kind, int device, const std::vector<DType>& types) {
  Findings found;
  found.append(kind.examine(device));
  if (!lack_of(found.all()).empty()) return found.all();
  try {
    const auto backend = kind.make({.world_size = 1}, nullptr, device);
    for (const DType type : types) found.append(self_check(*backend, type));
  } catch (const std::exception& error) {
    found.add({"self-check", Finding::State::missing, error.what()});
  }
  if (const auto slow = too_slow(found.all()); slow && kind.ranks != 0) found.append({*slow});
  return found.all();
}

void check_processes(const std::string& name, const Processes& processes, int world_size,
                     const std::vector<std::string>& nccl) {
  const BuiltIn& entry = built_in(name);
  if (processes.count() == 1) return;
  entry.check_processes(nccl);
  if (entry.ranks == 0 || processes.count() == world_size) return;  // of CPU ranks a process may have none
  throw InputError("", "parallel",
                   "has " + std::to_string(world_size) + " ranks, but the launcher started " +
                       std::to_string(processes.count()) + " processes",
                   "start one for each rank");
}

std::unique_ptr<Backend> make_backend(const std::string& name, const BackendOptions& options,
                                      Processes* of_run) {
  if (of_run != nullptr && of_run->count() == 1) of_run = nullptr;
  if (of_run != nullptr) check_processes(name, *of_run, options.world_size, options.nccl);
  return built_in(name).make(options, of_run, 0);
}

std::unique_ptr<Backend> make_replay_backend(const std::string& name, const BackendOptions& options,
                                             const Replay& replay) {
  return built_in(name).replay(options, replay);
}

}  // namespace stp
