// One step of a training on CPUs, held against the reference and against what the Program and the model
// declare.
#pragma once

#include "support/training.h"

namespace stp {

struct Case {
  std::string schedule;
  int tp, dp, pp, m, chunks = 0;
};

/// Loss and gradients are the reference's, but of bf16, which bf16_test.cc compares; what the allocator held
/// and what the groups sent is as declared; nothing is left. By default each stage has one layer, but for a
/// vision encoder's. Nothing is checked where the method refuses the case.
void expect_step(const Case& c, DType type, const testing_support::Variant& variant = {},
                 const std::vector<int>& layers = {});
void expect_step_of(const Schedule& schedule, const Case& c, DType type,
                    const testing_support::Variant& variant = {}, const std::vector<int>& layers = {});

/// Of a trainer that has made a step.
void expect_declared_bytes(Trainer& trainer, const testing_support::GridTraining& training,
                           const testing_support::Variant& variant);

}  // namespace stp
