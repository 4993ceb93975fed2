// Kernels on whole tensors, GEMMs, and the optimizer.
#include <gmock/gmock.h>

#include <cmath>
#include <span>

#include "kernels/kernel_cases.h"

namespace stp::kernel_cases {
namespace {

std::vector<int64_t> counts() {
  std::vector<int64_t> all{0, 1, 7, 8, 101, 4096, 70001};
  if (large()) all.push_back(3'000'003);
  return all;
}

TEST_P(KernelCases, WholeTensors) {
  for (const int64_t count : counts()) {
    expect_exact({out(count, 1), out(1, count, Kind::statistics), out(1, 1, Kind::total)}, [&](const On& on) {
      on.issue(kernel::Fill{on.t[0], -0.375});
      on.issue(kernel::Fill{on.t[1], 1.5});
      on.issue(kernel::Fill{on.t[2], 1.0 / 3});
    });
    expect_exact({in(count, 1), out(count, 1), out(count, 1), in_out(count, 1)}, [&](const On& on) {
      on.issue(kernel::Copy{on.t[0], on.t[1]});
      on.issue(kernel::Scale{-0.3, on.t[0], on.t[2]});
      on.issue(kernel::Scale{0.7, on.t[3], on.t[3]});
    });
  }
}

// From the first row on and from others, which with odd columns begin anywhere in a pack.
TEST_P(KernelCases, RowsAreAdded) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {3, 8}, {5, 33}, {40, 1000}, {0, 8}})
    for (const int64_t first : {0, 1, 7})
      expect_exact({in(rows, columns), in_out(first + rows + 2, columns)}, [&](const On& on) {
        on.issue(kernel::AddRows{on.t[0], first, on.t[1]});
      });
  Operand number{1, 1, Kind::total, Role::in, {1.0 / 3}}, sum{1, 1, Kind::total, Role::in_out, {1e9}};
  expect_exact({number, sum}, [&](const On& on) { on.issue(kernel::AddRows{on.t[0], 0, on.t[1]}); });
}

// Any columns of any matrix to any of another, whose others stay.
TEST_P(KernelCases, ColumnsAreCopied) {
  struct Case {
    int64_t rows, from_columns, from, to_columns, to, count;
  };
  for (const Case& c : {Case{1, 1, 0, 1, 0, 1},
                        {7, 24, 8, 16, 0, 16},
                        {40, 33, 5, 70, 61, 9},
                        {5, 12, 0, 24, 12, 12},
                        {0, 4, 0, 4, 0, 4},
                        {3, 4, 4, 4, 0, 0}})
    expect_exact({in(c.rows, c.from_columns), in_out(c.rows, c.to_columns)}, [&](const On& on) {
      on.issue(kernel::CopyColumns{on.t[0], c.from, on.t[1], c.to, c.count});
    });
}

TEST_P(KernelCases, WhatIsFiniteGoesOn) {
  const auto check = [](const On& on) {
    for (const Tensor& tensor : on.t) on.issue(kernel::CheckFinite{tensor, "it"});
  };
  for (const int64_t count : counts()) expect_exact({in(count, 1), in(1, 1, Kind::total)}, check);
  Operand huge = in(3, 5);
  huge.values[7] = rounded(std::ldexp(1.0, 127));
  expect_exact({huge}, check);
}

TEST_P(KernelCases, WhatIsNotFiniteFailsTheRun) {
  for (const double value : {NAN, INFINITY, -INFINITY})
    for (const int64_t at : {int64_t{0}, int64_t{64}, int64_t{1000}}) {
      machine_ = std::make_unique<Machine>();
      Device& device = machine_->device;
      const auto stream = device.make_stream("compute", StreamPriority::compute);
      const Tensor tensor = device.allocate(*stream, MemoryKind::working, DType::f32, 7, 143);
      std::vector<float> values(7 * 143);
      values[static_cast<size_t>(at)] = static_cast<float>(value);
      device.upload(*stream, tensor, std::as_bytes(std::span(values)));
      machine_->kernels(CudaAttention::cudnn).issue(*stream, kernel::CheckFinite{tensor, "the gradient"});
      EXPECT_THROW(device.synchronize(), Cancelled);
      EXPECT_THAT(machine_->run.guard.failure(), testing::HasSubstr("the gradient is not finite"));
    }
}

TEST_P(KernelCases, Gemm) {
  std::vector<std::array<int64_t, 3>> all{{7, 5, 3},    {1, 1, 1}, {33, 130, 65}, {64, 1, 129},
                                          {16, 32, 24}, {3, 4, 0}, {0, 4, 3}};
  if (large()) all.insert(all.end(), {{1024, 1536, 512}, {513, 1025, 771}});
  for (const auto& [m, n, k] : all)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const double beta : {0.0, 1.0, -0.5})
          for (const Kind result : {Kind::x, Kind::statistics}) {
            Operand c = in_out(m, n, result);
            if (beta == 0) c.role = Role::out;
            const Operand a = ta ? in(k, m) : in(m, k), b = tb ? in(n, k) : in(k, n);
            expect_exact({a, b, c}, [&](const On& on) {
              on.issue(kernel::Gemm{ta, tb, 0.75, on.t[0], on.t[1], beta, on.t[2]});
            });
            c.role = Role::in;
            expect_exact({a, b, c, out(m, n, result)}, [&](const On& on) {
              on.issue(kernel::Gemm{ta, tb, 0.75, on.t[0], on.t[1], beta, on.t[3], on.t[2]});
            });
          }
}

TEST_P(KernelCases, SumsOfSquaresAreAdded) {
  for (const int64_t count : counts())
    expect_exact({in(count, 1), in_out(1, 1, Kind::total)}, [&](const On& on) {
      on.issue(kernel::AddSumOfSquares{0.25, on.t[0], on.t[1]});
    });
}

TEST_P(KernelCases, AdamW) {
  for (const int64_t count : counts())
    for (const double max_norm : {0.0, 0.5, 1e9})  // no total; clipped; too small to be
      for (const int step : {1, 3}) {
        const stp::AdamW options{.learning_rate = 0.01,
                                 .beta1 = 0.8,
                                 .beta2 = 0.9,
                                 .epsilon = 1e-6,
                                 .weight_decay = 0.1,
                                 .step = step};
        Operand second = in_out(count, 1, Kind::statistics);
        for (double& value : second.values) value = std::abs(value);
        const Operand total{1, 1, Kind::total, Role::in, {16}};
        expect_exact({total, in(count, 1, Kind::statistics), in_out(count, 1, Kind::statistics), second,
                      in_out(count, 1, Kind::statistics), out(count, 1)},
                     [&](const On& on) {
                       const bool one = on.t[4].type == on.t[5].type;  // the weight is its master
                       on.issue(kernel::AdamW{options, max_norm, max_norm > 0 ? on.t[0] : Tensor{}, on.t[1],
                                              on.t[2], on.t[3], on.t[4], one ? on.t[4] : on.t[5]});
                       if (one) on.issue(kernel::Copy{on.t[4], on.t[5]});
                     });
      }
}

}  // namespace
}  // namespace stp::kernel_cases
