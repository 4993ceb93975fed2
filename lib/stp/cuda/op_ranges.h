// Ranges that a profiler (Nsight Systems) shows, named as torch's profiles name the actions of a pipeline.
#pragma once

#include <string>

namespace stp::cuda {

/// Whether a profiler is attached: else no text is needed for ranges.
bool profiler_attached();
/// From here to end_op_range(), on the calling thread. Shown as "PP:" and `words`.
void begin_op_range(const std::string& words);
void end_op_range();

}  // namespace stp::cuda
