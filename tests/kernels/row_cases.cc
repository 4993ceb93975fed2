// Norms, biases and their sums, activations, embedding, cross-entropy: kernels on rows.
#include <algorithm>
#include <cmath>

#include "kernels/kernel_cases.h"
#include "support/effort.h"

namespace stp::kernel_cases {
namespace {

struct Size {
  int64_t rows, columns;
};

// One element, odd columns, whole packs, more rows than blocks or shares, rows of several turns of a block.
std::vector<Size> sizes() {
  std::vector<Size> all{{1, 1}, {1, 8}, {3, 7}, {5, 64}, {19, 33}, {70, 16}, {2, 4099}, {2, 8200}, {0, 8}};
  if (large()) all.insert(all.end(), {{9001, 64}, {2048, 2048}, {3000, 1111}});
  return all;
}

TEST_P(KernelCases, Norms) {
  for (const bool centred : {false, true})
    for (const auto& [rows, columns] : sizes())
      for (const bool with_bias : {false, true}) {
        if (with_bias && !centred) continue;
        const int64_t numbers = centred ? 2 : 1;
        std::vector<std::vector<double>> forward;
        for (const double epsilon : {1e-6, 0.5})
          forward = expect_exact(
              {in(rows, columns), in(1, columns), in(1, columns), out(rows, columns),
               out(rows, numbers, Kind::statistics)},
              [&](const On& on) {
                on.issue(kernel::NormForward{centred, on.t[0], on.t[1], with_bias ? on.t[2] : Tensor{},
                                             epsilon, on.t[3], on.t[4]});
              });
        const Operand statistics = kept(rows, numbers, forward[4], Kind::statistics);
        const Operand x{rows, columns, Kind::x, Role::in, forward[0]};
        for (const bool residual : {false, true})
          expect_exact({in_out(rows, columns), x, in(1, columns), statistics, in(rows, columns),
                        in_out(1, columns, Kind::statistics), in_out(1, columns, Kind::statistics)},
                       [&](const On& on) {  // in place
                         on.issue(kernel::NormBackward{centred, on.t[0], on.t[1], on.t[2], on.t[3], 0.5,
                                                       residual ? on.t[4] : Tensor{}, on.t[0], on.t[5],
                                                       with_bias ? on.t[6] : Tensor{}});
                       });
      }
}

// Rows of all that shared memory has unasked, beside what the kernel declares; of all without that; of more;
// and the same of all that it has when asked for: the last two do not fit.
TEST_P(KernelCases, RmsNormBackwardOfLongRows) {
  std::vector<Size> all = sizes();
  all.insert(all.end(), {{2, 12256}, {2, 12288}, {2, 12320}});
  if (kStride > 1)
    all.insert(all.end(), {{1, 58112}, {1, 58121}});
  else
    all.insert(all.end(), {{2, 58080}, {2, 58112}, {7, 58120}, {2, 58121}});
  for (const auto& [rows, columns] : all) {
    Operand rstd = in(rows, 1, Kind::statistics);
    for (double& value : rstd.values) value = std::abs(value);
    for (const bool residual : {false, true})
      expect_exact({in(rows, columns), in(rows, columns), in(1, columns), rstd, in(rows, columns),
                    out(rows, columns), in_out(1, columns, Kind::statistics)},
                   [&](const On& on) {
                     on.issue(kernel::NormBackward{false,
                                                   on.t[0],
                                                   on.t[1],
                                                   on.t[2],
                                                   on.t[3],
                                                   0.5,
                                                   residual ? on.t[4] : Tensor{},
                                                   on.t[5],
                                                   on.t[6],
                                                   {}});
                   });
  }
}

TEST_P(KernelCases, AddBias) {
  for (const auto& [rows, columns] : sizes())
    expect_exact({in(1, columns), in_out(rows, columns)}, [&](const On& on) {
      on.issue(kernel::AddBias{0.25, on.t[0], on.t[1]});
    });
}

TEST_P(KernelCases, Activations) {
  for (const auto& [rows, columns] : sizes())
    for (const auto function :
         {kernel::Pointwise::gelu, kernel::Pointwise::gelu_tanh, kernel::Pointwise::squared_relu}) {
      Operand x = in(rows, columns);
      if (rows > 1) {  // far out
        x.values[0] = 120;
        x.values[1] = -120;
      }
      expect_exact({x, out(rows, columns)}, [&](const On& on) {
        on.issue(kernel::ActivationForward{function, on.t[0], on.t[1]});
      });
      expect_exact({x, in(rows, columns), out(rows, columns)}, [&](const On& on) {
        on.issue(kernel::ActivationBackward{function, on.t[0], on.t[1], on.t[2]});
      });
    }
}

TEST_P(KernelCases, AddColumnSums) {
  std::vector<Size> all = sizes();
  all.push_back({33000, 9});  // more rows than all shares have, were they of the least size
  for (const auto& [rows, columns] : all)
    expect_exact({in(rows, columns), in_out(1, columns, Kind::statistics)}, [&](const On& on) {
      on.issue(kernel::AddColumnSums{on.t[0], on.t[1]});
    });
}

TEST_P(KernelCases, SwiGlu) {
  for (const auto& [rows, columns] : sizes()) {
    Operand gate_up = in(rows, 2 * columns);
    if (rows > 1) {  // far out, where exp itself overflows
      gate_up.values[0] = 120;
      gate_up.values[2 * columns] = -120;
    }
    expect_exact({gate_up, out(rows, columns)}, [&](const On& on) {
      on.issue(kernel::SwigluForward{on.t[0], on.t[1]});
    });
    expect_exact({gate_up, in(rows, columns), out(rows, 2 * columns)}, [&](const On& on) {
      on.issue(kernel::SwigluBackward{on.t[0], on.t[1], on.t[2]});
    });
  }
}

// Entries [first, first + entries) of a vocabulary of 40, of which some tokens are often, some never, and
// some of other ranks.
TEST_P(KernelCases, Embedding) {
  std::vector<Size> all{{1, 1}, {7, 5}, {700, 8}, {300, 33}, {9, 2056}, {0, 8}};
  if (large()) all.insert(all.end(), {{4096, 1024}, {70000, 8}});
  for (const auto& [rows, columns] : all)
    for (const auto& [first, entries] : {std::pair<int64_t, int64_t>{0, 40}, {10, 10}, {39, 1}}) {
      Operand tokens{rows, 1, Kind::index, Role::in, Values(rows)};
      for (int64_t i = 0; i < rows; ++i) tokens.values[i] = static_cast<double>(i * i % 37 + i % 3);
      const auto start = first;
      expect_exact({tokens, in(entries, columns), out(rows, columns)}, [&](const On& on) {
        on.issue(kernel::EmbeddingForward{on.t[0], on.t[1], start, on.t[2]});
      });
      expect_exact({tokens, in(rows, columns), in_out(entries, columns, Kind::statistics)},
                   [&](const On& on) {
                     on.issue(kernel::EmbeddingBackward{on.t[0], on.t[1], start, on.t[2]});
                   });
    }
}

// Logits of one of several ranks: targets lie before, among and behind its entries.
TEST_P(KernelCases, CrossEntropy) {
  std::vector<Size> all{{1, 1}, {3, 7}, {5, 64}, {19, 33}, {40, 1084}, {2, 8200}, {0, 8}};
  if (large()) all.insert(all.end(), {{9001, 64}, {64, 152064}});
  for (const auto& [rows, columns] : all) {
    const int64_t first = 100, width = columns;
    Operand logits{rows, columns, Kind::x, Role::in, random(rows * columns, Kind::x, 4)};
    if (rows > 2)  // one row far from the others, and all of it negative
      for (int64_t i = 0; i < columns; ++i) logits.values[i] = rounded(logits.values[i] - 300);
    Operand targets{rows, 1, Kind::index, Role::in, Values(rows)};
    for (int64_t i = 0; i < rows; ++i)
      targets.values[i] = static_cast<double>(i % 5 == 0   ? first + width - 1
                                              : i % 5 == 1 ? first
                                              : i % 5 == 2 ? first - 1
                                              : i % 5 == 3 ? first + width
                                                           : first + i % width);
    if (rows > 3)  // one whose every element is larger than those before it
      for (int64_t i = 0; i < columns; ++i)
        logits.values[columns + i] =
            rounded(80.0 * static_cast<double>(i) / static_cast<double>(columns) - 40);
    const auto sums_of = [&](const Operand& of) {
      return expect_exact(
          {of, targets, out(rows, 1, Kind::statistics), out(rows, 1, Kind::statistics),
           out(rows, 2, Kind::statistics)},
          [&](const On& on) {
            on.issue(kernel::ExponentialSums{on.t[0], on.t[1], first, on.t[2], on.t[3], on.t[4]});
          });
    };
    if (rows > 3) {  // a row in which threads meet nothing but −infinity
      Operand masked = logits;
      std::fill_n(&masked.values[2 * columns], columns - 1, -INFINITY);
      sums_of(masked);
    }
    const auto sums = sums_of(logits);
    // The largest is of another rank in some rows.
    Operand own{rows, 1, Kind::statistics, Role::in, sums[3]}, shift = own;
    for (int64_t i = 0; i < rows; i += 3) shift.values[i] = rounded(shift.values[i] + 2, Kind::statistics);
    Operand all_sums{rows, 2, Kind::statistics, Role::in, sums[4]}, in_place = logits;
    for (double& sum : all_sums.values) sum = rounded(sum + 1, Kind::statistics);
    in_place.role = Role::in_out;
    // Rounding moves one value by up to 2⁻⁸ of it, many together by less.
    const Rounded rounding = rows * columns == 1 ? Rounded{.results = {0x1p-8, 6e-3}} : Rounded{};
    expect_exact(
        {own, shift, all_sums, in_place, in_out(rows, 2, Kind::statistics)},
        [&](const On& on) {
          on.issue(kernel::RescaleRows{on.t[0], on.t[1], on.t[2], 0.25, on.t[3], columns});
          on.issue(kernel::RescaleRows{on.t[0], on.t[1], {}, 1, on.t[4], 1});
        },
        rounding);
    expect_exact({own, in_place}, [&](const On& on) {
      on.issue(kernel::CrossEntropy{on.t[0], {}, {}, 0, 0.5, on.t[1], {}});
    });
    expect_exact({shift, all_sums, targets, in_place, in_out(1, 1, Kind::statistics)}, [&](const On& on) {
      on.issue(kernel::CrossEntropy{on.t[0], on.t[1], on.t[2], first, 0.25, on.t[3], on.t[4]});
    });
  }
}

}  // namespace
}  // namespace stp::kernel_cases
