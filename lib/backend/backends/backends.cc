#include "stp/backends/backends.h"

#include <unistd.h>

#include "stp/base/error.h"
#include "stp/cpu/cpu_backend.h"
#ifdef STP_HAVE_CUDA
#include "stp/cuda/cuda_backend.h"
#include "stp/cuda/cuda_replay.h"
#include "stp/cuda/gpu_facts.h"
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
  nlohmann::json (*facts)();
  void (*check)();  // for a device
  std::unique_ptr<Backend> (*make)(const BackendOptions& options);
  std::unique_ptr<Backend> (*replay)(const BackendOptions& options, const Replay& replay);
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all{
      {"cpu",
       {DType::f32, DType::f64, DType::bf16},
       0,
       memory_of_machine,
       [] { return nlohmann::json(); },
       [] {},
       make_cpu_backend,
       make_cpu_replay_backend},
#ifdef STP_HAVE_CUDA
      {"cuda",
       {DType::bf16, DType::f32},
       1,
       [] { return gpu_memory(); },
       [] { return gpu_facts(); },
       [] { check_gpu(); },
       [](const BackendOptions& options) { return make_cuda_backend(options); },
       [](const BackendOptions& options, const Replay& replay) {
         return make_cuda_replay_backend(options, replay);
       }},
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

void check_backend(const std::string& name) { find(name).check(); }

int backend_ranks(const std::string& name) { return find(name).ranks; }

double backend_memory(const std::string& name) {
  check_backend(name);
  return find(name).memory();
}

nlohmann::json backend_facts(const std::string& name) {
  check_backend(name);
  return find(name).facts();
}

std::vector<DType> backend_types(const std::string& name) { return find(name).types; }

std::unique_ptr<Backend> make_backend(const std::string& name, const BackendOptions& options) {
  return find(name).make(options);
}

std::unique_ptr<Backend> make_replay_backend(const std::string& name, const BackendOptions& options,
                                             const Replay& replay) {
  return find(name).replay(options, replay);
}

}  // namespace stp
