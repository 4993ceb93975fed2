// How the process's allocator treats memory that is given back.
#pragma once

namespace stp {

/// Keeps freed memory in the process. Configurations are worked off one after the other, each with vectors of
/// megabytes; giving their pages back to the system and having them zeroed anew costs up to a quarter of the
/// time. For programs, before they begin; without effect where the C library is not glibc.
void keep_freed_memory();

}  // namespace stp
