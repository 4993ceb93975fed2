// All backends, by name: the one place that knows them.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "stp/backend/backend.h"
#include "stp/backend/pacing.h"

namespace stp {

/// Those that are built in.
std::vector<std::string> backend_names();

/// Throws InputError if no backend of that name is built in, or there is no device for it here.
void check_backend(const std::string& name);
/// How many ranks can exchange data there: 0 for any number, which share its processors.
int backend_ranks(const std::string& name);
/// Bytes of memory: of the machine, or of one device.
double backend_memory(const std::string& name);
/// What its device is, for records; null for the processors of the machine.
nlohmann::json backend_facts(const std::string& name);
/// Of X of lib/backend/kernels.h: what its kernels take, the usual one first. InputError likewise, here and
/// below.
std::vector<DType> backend_types(const std::string& name);
std::unique_ptr<Backend> make_backend(const std::string& name, const BackendOptions& options);

/// One rank of a world of options.world_size, alone; all its communicators are paced.
std::unique_ptr<Backend> make_replay_backend(const std::string& name, const BackendOptions& options,
                                             const Replay& replay);

}  // namespace stp
