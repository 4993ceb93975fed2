// Groups of the CPU backend whose members several processes drive.
#include "all_processes.h"
#include "stp/cpu/cpu_backend.h"
#include "support/local_groups.h"

namespace stp::testing_support {
namespace {

const GroupBackend kCpu{
    [](const BackendOptions& options) { return cpu::make_backend(options, &all_processes()); }};

INSTANTIATE_TEST_SUITE_P(Mpi, LocalGroups, testing::Values(kCpu));

}  // namespace
}  // namespace stp::testing_support
