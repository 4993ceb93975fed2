// Tests that all processes of a run go through together (main.cc).
#pragma once

#include "stp/processes/processes.h"

namespace stp::testing_support {

Processes& all_processes();

}  // namespace stp::testing_support
