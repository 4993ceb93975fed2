// How a Program describes its ops in messages.
#include "stp/program/program.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "stp/program/lower.h"
#include "support/programs.h"

namespace stp {
namespace {

TEST(Program, DescribesItsOpsByRankStreamAndAction) {
  const Program program = lower(two_ranks(), {1, 2}, {Release::chain, BackwardOrder::megatron, true});
  std::set<std::string> texts;
  for (OpId op = 0; op < program.ops.size(); ++op) texts.insert(describe(program, op));
  for (const char* text :
       {"rank 1, compute, mlp.I of B0.0, layer 1", "rank 1, compute, mlp.W_early of B0.0, layer 1",
        "rank 1, tp, all-reduce of attn.I of B0.0, layer 0", "rank 0, compute, mlp.W of W0.1, layer 0",
        "rank 0, p2p, transfer to rank 1 of F0.1", "rank 1, compute, head.F of F0.1",
        "rank 0, compute, optimizer"})
    EXPECT_TRUE(texts.contains(text)) << text;
}

}  // namespace
}  // namespace stp
