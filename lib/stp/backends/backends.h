// All backends, by name; only this module knows all of them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stp/base/json_input.h"
#include "stp/device/backend.h"
#include "stp/emulation/link_emulation.h"
#include "stp/processes/processes.h"

namespace stp {

/// A backend that is built in.
struct BuiltIn {
  std::string name;
  std::vector<DType> types;  // types X (lib/stp/device/kernels.h) that its kernels support, the default first
  int ranks;                 // that can exchange data there; 0: any number, which share the processors
  bool graphs;               // whether it supports BackendOptions::graphs
  bool vision;               // whether it has the kernels of vision encoders (Kernels::vision())
  std::map<std::string, bool> libraries;  // optional ones, and whether it was built with each
  /// Throws InputError if there is no device for this node's process of that number.
  void (*check)(int device);
  double (*memory)();     // bytes: of the machine, or of one device
  SharedJson (*facts)();  // a description of its device for records; null for the processors of the machine

  // What the functions below do there.
  std::unique_ptr<Backend> (*make)(const BackendOptions& options);
  std::unique_ptr<Backend> (*replay)(const BackendOptions& options, const Replay& replay);
  void (*check_processes)(const std::vector<std::string>& nccl);
  std::unique_ptr<Backend> (*one_of_several)(const BackendOptions& options, Processes& processes);
};
const std::vector<BuiltIn>& built_in_backends();
/// The one of that name; InputError if there is none. The functions below throw it, too.
const BuiltIn& built_in(const std::string& name);

/// All ranks, driven by this process.
std::unique_ptr<Backend> make_backend(const std::string& name, const BackendOptions& options);
/// Only the ranks of this process (ranks_of_process); if the backend has devices, each process has one, with
/// one rank. `processes` must outlive the backend. All processes make their backends in the same order.
/// InputError as check_processes().
std::unique_ptr<Backend> make_backend(const std::string& name, const BackendOptions& options,
                                      Processes& processes);
/// Throws InputError if these processes, where they are several, cannot drive a run of `world_size` ranks
/// there: this build lacks NCCL, there is not one process for each rank and device, or `nccl`
/// (BackendOptions::nccl) is invalid. `field`: the field that gives the number of ranks, for errors.
void check_processes(const std::string& name, const Processes& processes, int world_size,
                     const std::vector<std::string>& nccl, const std::string& field = "parallel");

/// One rank of a world of options.world_size, alone; all its groups are over emulated links.
std::unique_ptr<Backend> make_replay_backend(const std::string& name, const BackendOptions& options,
                                             const Replay& replay);

}  // namespace stp
