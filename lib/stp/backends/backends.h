// All backends, by name: the one place that knows them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stp/base/json_input.h"
#include "stp/device/backend.h"
#include "stp/emulation/pacing.h"
#include "stp/processes/bootstrap.h"
#include "stp/processes/rendezvous.h"

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
/// All ranks, driven by this process.
std::unique_ptr<Backend> make_backend(const std::string& name, const BackendOptions& options);

/// Whether BackendOptions::graphs means anything there.
bool backend_has_graphs(const std::string& name);
/// Whether a run there can be of several processes, each of which drives one rank on a device of its own.
bool backend_has_processes(const std::string& name);
/// This process's place among them, where a launcher started several (lib/stp/processes/bootstrap.h).
std::optional<ProcessPlace> place_among_processes(const std::string& name);
/// Throws InputError if this build lacks what several processes need, or `nccl` (BackendOptions::nccl) says
/// what nobody understands: what each process can tell before they meet.
void check_processes(const std::string& name, const std::vector<std::string>& nccl);
/// The rank of the rendezvous' place, on the device of its place on the node; one backend at a time.
/// `rendezvous` outlives it, and its guard is the run's: options.deadline_s is not looked at. InputError if
/// this build lacks what that needs, or options.world_size is not the number of processes.
std::unique_ptr<Backend> make_backend(const std::string& name, const BackendOptions& options,
                                      Rendezvous& rendezvous);

/// One rank of a world of options.world_size, alone; all its communicators are paced.
std::unique_ptr<Backend> make_replay_backend(const std::string& name, const BackendOptions& options,
                                             const Replay& replay);

}  // namespace stp
