// Every process that the launcher started runs all tests, in one order. What fails in one of them would leave
// the others waiting, so it ends them all.
#include <gtest/gtest.h>

#include "all_processes.h"

namespace stp::testing_support {
namespace {

std::unique_ptr<Processes> joined;

class EndAllAtFailure : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const char* file = result.file_name() == nullptr ? "" : result.file_name();
    all_processes().abort(
        std::string(file) + ":" + std::to_string(result.line_number()) + ": " + result.message(), 1);
  }
};

}  // namespace

Processes& all_processes() { return *joined; }

}  // namespace stp::testing_support

int main(int argc, char** argv) {
  using namespace stp::testing_support;
  testing::InitGoogleTest(&argc, argv);
  joined = stp::join_processes(/*deadline_s=*/60);
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  if (!joined->is_root()) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new EndAllAtFailure);
  const int code = RUN_ALL_TESTS();
  joined.reset();  // before the end of main(): MPI is finalised
  return code;
}
