// All backends by name. Only this module knows all of them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stp/base/json_input.h"
#include "stp/device/backend.h"
#include "stp/device/finding.h"
#include "stp/emulation/link_emulation.h"
#include "stp/processes/processes.h"

namespace stp {

/// A backend that is built in.
struct BuiltIn {
  std::string name;
  std::vector<DType> types;  // types X (kernel_arguments.h) of its kernels, the default first
  int ranks = 0;             // that can exchange data; 0: any number, on shared processors
  bool graphs = false;       // it supports BackendOptions::graphs
  bool emulates = false;     // its kernels only take time, by BackendOptions::hooks
  bool vision = false;       // it has the kernels of vision encoders (Kernels::vision())
  std::map<std::string, bool> libraries = {};  // optional libraries: whether the build has each
  /// Throws InputError if there is no device number `device` for this node.
  void (*check)(int device) = [](int) {};
  double (*memory)();  // bytes: of the machine, or of one device
  /// Its device, for records; null for the machine's processors.
  SharedJson (*facts)() = [] { return SharedJson(); };
  /// What it finds of drivers, devices and libraries.
  std::vector<Finding> (*examine)(int device) = [](int) { return std::vector<Finding>(); };

  // The backend's implementation of the functions below.
  std::unique_ptr<Backend> (*make)(const BackendOptions& options, Processes* of_run, int device);
  std::unique_ptr<Backend> (*replay)(const BackendOptions& options, const Replay& replay);
  void (*check_processes)(const std::vector<std::string>& nccl) = [](const std::vector<std::string>&) {};
};
const std::vector<BuiltIn>& built_in_backends();
/// The backend called `name`. Throws InputError if there is none, as do the functions below.
const BuiltIn& built_in(const std::string& name);

/// What works, falls back or is missing on this node's device number `device`, in these types: drivers and
/// libraries, then small kernels with known results (lib/stp/device/self_check.h).
std::vector<Finding> examine(const BuiltIn& kind, int device, const std::vector<DType>& types);

/// Makes a backend with only the ranks of this process (ranks_of_process): all, if `of_run` is null or one
/// process. If the backend has devices, each of several processes has one device and one rank. `of_run` must
/// outlive the backend. All processes make their backends in the same order. Throws InputError like
/// check_processes().
std::unique_ptr<Backend> make_backend(const std::string& name, const BackendOptions& options,
                                      Processes* of_run = nullptr);
/// Throws InputError if several processes cannot drive a run of `world_size` ranks on this backend: this
/// build lacks NCCL, the number of processes, ranks and devices differs, or `nccl` (BackendOptions::nccl) is
/// invalid.
void check_processes(const std::string& name, const Processes& processes, int world_size,
                     const std::vector<std::string>& nccl);

/// Makes one rank of a world of options.world_size, alone; emulated links carry all its groups.
std::unique_ptr<Backend> make_replay_backend(const std::string& name, const BackendOptions& options,
                                             const Replay& replay);

}  // namespace stp
