// Several processes: groups of the CPU backend whose members they drive, texts, and training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "all_processes.h"
#include "stp/cpu/cpu_backend.h"
#include "support/effort.h"
#include "support/local_groups.h"
#include "support/training.h"

namespace stp::testing_support {
namespace {

const GroupBackend kCpu{
    [](const BackendOptions& options) { return cpu::make_backend(options, &all_processes()); }};

INSTANTIATE_TEST_SUITE_P(Mpi, LocalGroups, testing::Values(kCpu));

// Texts that processes exchange.

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

// What several processes train together is what one process trains, to the last bit: losses, gradients,
// weights, bytes held and bytes sent. That one trains what the reference trains is tested in tests/runtime.

struct Case {
  std::string schedule;
  int tp, dp, pp, m;
  Variant variant = {};
  DType type = DType::f64;
};

/// What a run leaves behind, of all its ranks.
struct Outcome {
  std::vector<double> losses;  // by step
  std::map<std::string, std::vector<double>> gradients, weights;
  std::string use;  // of memory and links, by rank
};

constexpr int kSteps = 2;

/// At process 0; elsewhere nothing of use.
Outcome train(Backend& backend, const GridTraining& training, const Program& program) {
  Trainer trainer(backend, program, training);
  Processes& processes = backend.processes();
  Outcome outcome;
  for (int step = 0; step < kSteps; ++step) {
    const double own = trainer.step(samples_for(program, training, step + 1)).loss;
    double sum = 0;
    for (const std::string& loss :
         processes.gather(std::string(reinterpret_cast<const char*>(&own), sizeof own))) {
      double value = 0;
      std::copy_n(loss.data(), sizeof value, reinterpret_cast<char*>(&value));
      sum += value;
    }
    outcome.losses.push_back(sum);
    if (step == 0) outcome.gradients = trainer.gradients();
  }
  outcome.weights = trainer.weights();
  std::ostringstream use;
  for (const RankUse& rank : trainer.use()) {
    use << "rank " << rank.world_rank << ": " << rank.peak_total << " bytes; sent "
        << rank.traffic.all_reduce_bytes << " " << rank.traffic.all_gather_bytes << " "
        << rank.traffic.reduce_scatter_bytes << " " << rank.traffic.sent_bytes << " "
        << rank.traffic.exchanged_bytes << " in " << rank.traffic.calls << " calls;";
    for (const auto& [kind, bytes] : rank.peak_bytes) use << " " << kind << " " << bytes;
    use << "\n";
  }
  for (const std::string& text : processes.gather(use.str())) outcome.use += text;
  return outcome;
}

class MpiTraining : public testing::TestWithParam<Case> {};

TEST_P(MpiTraining, IsThatOfOneProcess) {
  static int next = 0;
  if (kStride > 1 && next++ % 4 > 0) return;  // with sanitizers, and in all processes alike
  const Case& c = GetParam();
  const Schedule schedule = make_schedule(find_generator(c.schedule), {c.pp, c.m});
  auto [training, program] = prepare(
      schedule, {.tp = c.tp, .cp = c.variant.context_parallel, .dp = c.dp, .pp = c.pp}, c.type, c.variant);
  training.optimizer.learning_rate = 0.01;
  const BackendOptions options{.world_size = training.grid.size(), .deadline_s = 20, .poison = true};
  const auto backend = cpu::make_backend(options, &all_processes());
  const Outcome outcome = train(*backend, training, program);
  if (!all_processes().is_root()) return;

  const RunGuard::Work work(backend->guard());  // the other processes wait
  const Outcome one = train(*cpu::make_backend(options), training, program);
  EXPECT_EQ(outcome.losses, one.losses);
  EXPECT_EQ(outcome.gradients, one.gradients);
  EXPECT_EQ(outcome.weights, one.weights);
  EXPECT_EQ(outcome.use, one.use);
}

constexpr Variant kSequenceParallel{.sequence_parallel = true}, kFull{.recompute = {.layer = true}},
    kBoth{.sequence_parallel = true, .recompute = {.layer = true}}, kZero{.zero = true},
    kZeroSharded{.sequence_parallel = true, .zero = true}, kRing{.zero = true, .context_parallel = 2},
    kLate{.post_validation = true}, kLateShares{.zero = true, .post_validation = true},
    kBuckets{.bucket_size = 1}, kBucketsOfShares{.sequence_parallel = true, .zero = true, .bucket_size = 2},
    kRingAndAll{.sequence_parallel = true, .recompute = {.layer = true}, .context_parallel = 2},
    kHeads{.sequence_parallel = true,
           .recompute = {.core = true},
           .context_parallel = 2,
           .cp_method = CpMethod::all_to_all},
    kHeadsOfFour{.context_parallel = 4, .cp_method = CpMethod::all_to_all},
    kOverlap{.sequence_parallel = true, .overlapped = 4},
    kOverlapInRings{.sequence_parallel = true, .context_parallel = 2, .overlapped = 2};

INSTANTIATE_TEST_SUITE_P(
    , MpiTraining,
    testing::Values(Case{"stp", 1, 1, 1, 3}, Case{"stp", 2, 1, 2, 7}, Case{"stp", 2, 2, 2, 5},
                    Case{"stp", 4, 1, 2, 7, kBoth}, Case{"stp", 2, 2, 2, 7, kSequenceParallel, DType::bf16},
                    Case{"zb-v", 4, 1, 2, 5, kSequenceParallel}, Case{"zb-v", 2, 1, 4, 9, kFull},
                    Case{"1f1b-i", 2, 2, 2, 4, kBoth}, Case{"1f1b-i", 1, 1, 8, 8, {}, DType::f32},
                    Case{"dualpipev", 2, 1, 4, 8}, Case{"dualpipev", 1, 2, 4, 8, kFull},
                    Case{"stp", 2, 3, 2, 4, kZero}, Case{"zb-v", 2, 2, 2, 5, kZeroSharded, DType::bf16},
                    Case{"stp", 1, 3, 2, 4, kBuckets}, Case{"zb-v", 2, 2, 2, 5, kBucketsOfShares},
                    Case{"stp", 2, 1, 2, 5, kLate}, Case{"1f1b", 1, 1, 4, 8, kLate},
                    Case{"zb-v", 2, 2, 2, 5, kLateShares}, Case{"stp", 2, 1, 2, 5, kRing},
                    Case{"zb-v", 2, 1, 2, 5, kRingAndAll}, Case{"stp", 4, 1, 2, 5, kOverlap},
                    Case{"dualpipev", 2, 1, 2, 4, kHeads},
                    Case{"1f1b-i", 1, 1, 2, 4, kHeadsOfFour, DType::f32},
                    Case{"zb-v", 2, 1, 2, 5, kOverlapInRings}));

}  // namespace
}  // namespace stp::testing_support
