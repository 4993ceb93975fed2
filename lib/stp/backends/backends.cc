#include "stp/backends/backends.h"

#include <unistd.h>

#include <stdexcept>

#include "stp/base/error.h"
#include "stp/cpu/cpu_backend.h"
#ifdef STP_HAVE_CUDA
#include "stp/cuda/cuda_backend.h"
#include "stp/cuda/cuda_replay.h"
#include "stp/cuda/gpu_facts.h"
#endif
#ifdef STP_HAVE_NCCL
#include "stp/cuda/nccl/nccl_backend.h"
#endif

namespace stp {
namespace {

double memory_of_machine() {
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
}

struct Entry {
  std::string name;
  std::vector<DType> types;
  int ranks;           // that exchange data; 0: any number
  double (*memory)();  // bytes
  SharedJson (*facts)();
  std::map<std::string, bool> libraries;
  bool graphs;
  bool vision;
  void (*check)(int device);
  std::unique_ptr<Backend> (*make)(const BackendOptions& options);
  std::unique_ptr<Backend> (*replay)(const BackendOptions& options, const Replay& replay);
  void (*check_processes)(const std::vector<std::string>& nccl);
  std::unique_ptr<Backend> (*one_of_several)(const BackendOptions& options, Processes& processes);
};

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

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all{
      {"cpu",
       {DType::f32, DType::f64, DType::bf16},
       0,
       memory_of_machine,
       [] { return SharedJson(); },
       {},
       false,
       true,
       [](int) {},
       [](const BackendOptions& options) { return cpu::make_backend(options); },
       cpu::make_replay_backend,
       [](const std::vector<std::string>&) {},
       [](const BackendOptions& options, Processes& processes) {
         return cpu::make_backend(options, processes);
       }},
#ifdef STP_HAVE_CUDA
      {"cuda",
       {DType::bf16, DType::f32},
       1,
       [] { return cuda::gpu_memory(); },
       [] { return cuda::gpu_facts(); },
       {{"cuDNN", kCudnn}, {"NCCL", kNccl}},
       true,
       false,
       [](int device) { cuda::check_gpu(cuda::gpu_of(device)); },
       [](const BackendOptions& options) { return cuda::make_backend(options); },
       [](const BackendOptions& options, const Replay& replay) {
         return cuda::make_replay_backend(options, replay);
       },
       check_nccl,
       one_gpu_of_several},
#endif
  };
  return all;
}

const Entry& find(const std::string& name) {
  std::string all;
  for (const Entry& entry : entries()) {
    if (entry.name == name) return entry;
    all += (all.empty() ? "" : " or ") + entry.name;
  }
  if (name == "cuda")
    throw InputError("", "--backend", "this build has no CUDA backend",
                     "build where nvcc is found, or use " + all);
  throw InputError("", "--backend", "\"" + name + "\" is not built in", "use " + all);
}

}  // namespace

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const Entry& entry : entries()) names.push_back(entry.name);
  return names;
}

std::map<std::string, bool> backend_libraries(const std::string& name) { return find(name).libraries; }

void check_backend(const std::string& name, int device) { find(name).check(device); }

int backend_ranks(const std::string& name) { return find(name).ranks; }

double backend_memory(const std::string& name) {
  check_backend(name);
  return find(name).memory();
}

SharedJson backend_facts(const std::string& name) {
  check_backend(name);
  return find(name).facts();
}

std::vector<DType> backend_types(const std::string& name) { return find(name).types; }

std::unique_ptr<Backend> make_backend(const std::string& name, const BackendOptions& options) {
  return find(name).make(options);
}

bool backend_has_graphs(const std::string& name) { return find(name).graphs; }

bool backend_has_vision(const std::string& name) { return find(name).vision; }

void check_processes(const std::string& name, const Processes& processes, int world_size,
                     const std::vector<std::string>& nccl, const std::string& field) {
  const Entry& entry = find(name);
  if (processes.count() == 1) return;
  entry.check_processes(nccl);
  if (entry.ranks == 0 || processes.count() == world_size) return;  // of CPU ranks a process may have none
  throw InputError("", field,
                   "has " + std::to_string(world_size) + " ranks, but the launcher started " +
                       std::to_string(processes.count()) + " processes",
                   "start one for each rank");
}

std::unique_ptr<Backend> make_backend(const std::string& name, const BackendOptions& options,
                                      Processes& processes) {
  if (processes.count() == 1) return make_backend(name, options);
  check_processes(name, processes, options.world_size, options.nccl);
  return find(name).one_of_several(options, processes);
}

std::unique_ptr<Backend> make_replay_backend(const std::string& name, const BackendOptions& options,
                                             const Replay& replay) {
  return find(name).replay(options, replay);
}

}  // namespace stp
