// The machines of `stp compare --profiles`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "stp/base/json_input.h"
#include "stp/cluster/profile.h"

namespace stp {

struct ComparedMachine {
  HardwareProfile profile;
  SharedJson profile_json;  // as read, every value with its source
  std::string file;
};

/// Reads the named profiles, or all of the suite: then that of the name `leading` comes first. `changes` of a
/// cluster (--set cluster.KEY=VALUE) make one more machine, a changed copy of the last one named.
std::vector<ComparedMachine> read_machines(const std::vector<std::string>& named, const std::string& leading,
                                           const std::vector<std::string>& changes);

/// The machines without fixed_memory_gb, if others have it: then it is taken from all, so that all are on one
/// basis.
nlohmann::json level_fixed_memory(std::vector<ComparedMachine>& machines);

/// Whether bands vary the value. A machine's own steps determine what was fitted to them; but where another
/// machine carries that value over, both are one unknown.
bool is_varied(const UncertainValue& uncertain, const ComparedMachine& machine,
               const std::vector<ComparedMachine>& machines);

}  // namespace stp
