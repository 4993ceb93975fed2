// Texts that processes exchange.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "all_processes.h"

namespace stp::testing_support {
namespace {

// Some are as long as TCP's pieces.
std::string text_of(int process) {
  return std::string(process % 3 == 2 ? 1 << 24 : process * 100'000, static_cast<char>('a' + process));
}

TEST(MpiTexts, AreGatheredInTheProcessesOrder) {
  Processes& processes = all_processes();
  for (int round = 0; round < 3; ++round) {
    const std::vector<std::string> texts = processes.gather(text_of(processes.index()));
    ASSERT_EQ(texts.size(), processes.is_root() ? processes.count() : 0);
    for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], text_of(static_cast<int>(i)));
  }
}

TEST(MpiTexts, ComeFromTheFirstToAll) {
  Processes& processes = all_processes();
  const std::string text("of process 0, with a \0", 22);
  EXPECT_EQ(processes.broadcast(processes.is_root() ? text : ""), text);
  EXPECT_EQ(processes.broadcast(""), "");
}

TEST(MpiTexts, ComeFromTheFirstOfSomeToThose) {
  Processes& processes = all_processes();
  const int own = processes.index(), last = processes.count() - 1;
  if (own == 0 || own == last) {
    EXPECT_EQ(processes.broadcast(text_of(own), {last, 0}), text_of(last));
  }
}

TEST(MpiTexts, ProcessesOfOneMachineAreNumbered) {
  EXPECT_EQ(all_processes().index_on_node(), all_processes().index());
}

}  // namespace
}  // namespace stp::testing_support
