// Offload with overlapped tensor parallelism: what a backward reads of a reloaded activation is there, and no
// more is held than declared.
#include <gtest/gtest.h>

#include "runtime/checked_step.h"
#include "support/effort.h"

namespace stp {
namespace {

TEST(OffloadOverlap, WhatABackwardReadsIsThereAndNoMore) {
  Sample sampled;
  for (const char* schedule : {"1f1b-i", "stp", "zb-v", "dualpipev"})  // with B and with I
    for (const Recompute& recompute : {Recompute{}, Recompute{.mlp = true, .activation = true}})
      for (const int chunks : {0, 1})  // by the rule, by a plan
        if (sampled())
          expect_step({schedule, 2, 1, 2, 12}, DType::f64,
                      {.sequence_parallel = true,
                       .recompute = recompute,
                       .overlapped = 2,
                       .offload = 1,
                       .offload_chunks = chunks});
}

}  // namespace
}  // namespace stp
