// How the process's allocator treats freed memory.
#pragma once

namespace stp {

/// Keeps freed memory in the process. Configurations are processed one after the other, each with vectors of
/// megabytes; returning their pages to the system and having them zeroed again costs up to a quarter of the
/// time. To be called at the start of a program; does nothing where the C library is not glibc.
void keep_freed_memory();

}  // namespace stp
