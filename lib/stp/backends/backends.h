// All backends, by name; only this module knows all of them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stp/base/json_input.h"
#include "stp/device/backend.h"
#include "stp/emulation/link_emulation.h"
#include "stp/processes/processes.h"

namespace stp {

/// The names of the backends that are built in.
std::vector<std::string> backend_names();

/// Optional libraries of a backend, and whether it was built with each.
std::map<std::string, bool> backend_libraries(const std::string& name);

/// Throws InputError if no backend of that name is built in, or there is no device for this node's process of
/// that number.
void check_backend(const std::string& name, int device = 0);
/// How many ranks can exchange data there; 0: any number, which share the processors.
int backend_ranks(const std::string& name);
/// Bytes of memory: of the machine, or of one device.
double backend_memory(const std::string& name);
/// A description of its device for records; null for the processors of the machine.
SharedJson backend_facts(const std::string& name);
/// The types X (lib/stp/device/kernels.h) that its kernels support, the default first. InputError as
/// check_backend(), here and below.
std::vector<DType> backend_types(const std::string& name);
/// Whether it supports BackendOptions::graphs.
bool backend_has_graphs(const std::string& name);
/// Whether it has the kernels of vision encoders (Kernels::vision()).
bool backend_has_vision(const std::string& name);

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
