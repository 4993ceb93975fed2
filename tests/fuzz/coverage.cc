// Coverage for libFuzzer from code that g++ compiles with -fsanitize-coverage=trace-pc,trace-cmp: each basic
// block calls trace_pc, and libFuzzer reads the counters of its section "extra counters".
#include <cstdint>

namespace {
__attribute__((section("__libfuzzer_extra_counters"))) uint8_t counters[1 << 16];
}  // namespace

extern "C" {
// The linker puts this in place of libFuzzer's __sanitizer_cov_trace_pc (--wrap), which ends the program.
void __wrap___sanitizer_cov_trace_pc() {
  const auto block = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  ++counters[(block ^ block >> 16) % sizeof(counters)];
}
// Comparisons of floating-point numbers, of which libFuzzer learns nothing.
void __sanitizer_cov_trace_cmpf(float, float) {}
void __sanitizer_cov_trace_cmpd(double, double) {}
}
