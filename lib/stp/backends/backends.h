// All backends, by name: the one place that knows them.
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

/// Those that are built in.
std::vector<std::string> backend_names();

/// What a build may be without: libraries that a backend uses where they are found, and whether it was built
/// for them.
std::map<std::string, bool> backend_libraries(const std::string& name);

/// Throws InputError if no backend of that name is built in, or there is no device of that number for it
/// here.
void check_backend(const std::string& name, int device = 0);
/// How many ranks can exchange data there: 0 for any number, which share its processors.
int backend_ranks(const std::string& name);
/// Bytes of memory: of the machine, or of one device.
double backend_memory(const std::string& name);
/// What its device is, for records; null for the processors of the machine.
SharedJson backend_facts(const std::string& name);
/// Of X of lib/stp/device/kernels.h: what its kernels take, the usual one first. InputError likewise, here
/// and below.
std::vector<DType> backend_types(const std::string& name);
/// Whether BackendOptions::graphs means anything there.
bool backend_has_graphs(const std::string& name);

/// All ranks, driven by this process.
std::unique_ptr<Backend> make_backend(const std::string& name, const BackendOptions& options);
/// Those of this process (ranks_of_process); of devices each process has one and drives one rank on it.
/// `processes` outlives it. All processes make their backends in one order. InputError if check_processes()
/// would throw it.
std::unique_ptr<Backend> make_backend(const std::string& name, const BackendOptions& options,
                                      Processes& processes);
/// Throws InputError if these processes, where they are several, cannot drive a run of `world_size` ranks
/// there: this build lacks what they need, there are too many or too few of them, or `nccl`
/// (BackendOptions::nccl) says what nobody understands. `field`: what says how many ranks there are.
void check_processes(const std::string& name, const Processes& processes, int world_size,
                     const std::vector<std::string>& nccl, const std::string& field = "parallel");

/// One rank of a world of options.world_size, alone; all its groups are over emulated links.
std::unique_ptr<Backend> make_replay_backend(const std::string& name, const BackendOptions& options,
                                             const Replay& replay);

}  // namespace stp
