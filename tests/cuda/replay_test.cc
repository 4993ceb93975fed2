// Replays on the CUDA backend: one rank alone does all that it does among the others, and its communication
// takes its time. On a GPU; and on the fake runtime (cuda_on_host), where the clock that kernels read moves
// when it is read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stp/emulation/emulated_group.h"
#include "support/effort.h"
#include "support/gpu_test.h"
#include "support/refusal.h"
#include "support/training.h"

namespace stp::cuda {
namespace {

using namespace testing_support;
using testing::HasSubstr;

class GpuReplay : public GpuTest {};

CallTimes all_take(CallTime time) {
  return [time](CallKind, double, const std::vector<int>&) { return time; };
}

TEST_F(GpuReplay, ARankDoesTheSameAlone) {
  struct Case {
    std::string schedule;
    RankGrid grid;
    DType type;
    Variant variant = {};
  };
  std::vector<Case> cases{{"stp", {.tp = 2, .pp = 2}, DType::bf16},
                          {"zb-v", {.pp = 2}, DType::f32},
                          {"1f1b", {.tp = 3, .dp = 2}, DType::bf16},
                          {"stp",
                           {.tp = 2, .cp = 2, .pp = 2},
                           DType::f32,
                           {.sequence_parallel = true, .context_parallel = 2, .overlapped = 2}}};
  if (kStride > 1) cases.resize(1);  // under sanitizers kernels on the host take their time
  for (const Case& each : cases) {
    constexpr int kMicrobatches = kStride > 1 ? 2 : 3;
    Training training = small_training(4, each.type, each.grid);
    if (each.grid.tp == 3)
      training.model.q_heads = 12, training.model.kv_heads = 3, training.model.vocab = 21;
    const Program program = program_of(each.schedule, each.grid, kMicrobatches, 4, each.variant);
    OnCpu whole(training, program);
    whole.step();
    const auto samples = whole.samples();
    const std::vector<RankUse> expected = whole.trainer.use();
    for (const int rank : {0, each.grid.size() - 1}) {
      SCOPED_TRACE(each.schedule + ", rank " + std::to_string(rank));
      const auto backend =
          make_replay_backend({.world_size = each.grid.size(), .deadline_s = 60, .poison = true},
                              {.rank = rank, .times = all_take({1e-6, 2e-6}), .collective_ctas = 4});
      Trainer trainer(*backend, program, training);
      for (int i = 0; i < 2; ++i) trainer.step(samples);  // the second with weights that the first made
      const RankUse use = trainer.use().at(0);
      EXPECT_EQ(use.world_rank, rank);
      expect_same_peaks(use, expected[rank], {"weights", "gradients", "optimizer", "saved"});
      expect_same_traffic(use.traffic, expected[rank].traffic, 2);
      expect_nothing_left(*backend);
    }
  }
}

// What the calls leave behind, through the stream of a device.
TEST_F(GpuReplay, CallsMoveTheRanksOwnNumbers) {
  const auto backend = make_replay_backend({.world_size = 3, .deadline_s = 60, .poison = true},
                                           {.rank = 1, .times = all_take({1e-6, 4e-6})});
  Device& device = backend->device(1);
  const auto stream = device.make_stream("tp", StreamPriority::communication);
  const auto group = backend->group("tp", {0, 1, 2}),
             from = backend->group("p2p", {0, 1}, GroupUse::transfers),
             to = backend->group("p2p", {1, 2}, GroupUse::transfers);
  const auto part = [&](const Tensor& in, const Tensor& out) {
    return std::vector<Part>{{stream.get(), in, out}};
  };
  const int64_t rows = 6, columns = 50'001;
  std::vector<float> numbers(rows * columns);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 9973) - 0.25F;
  const auto make = [&](int64_t count) {
    return device.allocate(*stream, MemoryKind::working, DType::f32, count, columns);
  };
  const auto read = [&](const Tensor& tensor) {
    std::vector<float> values(tensor.elements());
    device.download(*stream, tensor, std::as_writable_bytes(std::span(values)));
    return values;
  };
  Tensor whole = make(rows), share = make(rows / 3), all = make(3 * rows), got = make(rows);
  device.upload(*stream, whole, std::as_bytes(std::span(numbers)));
  group->all_reduce(Reduce::sum, part(whole, whole));
  EXPECT_EQ(read(whole), numbers);
  group->reduce_scatter(part(whole, share));
  const auto first = numbers.begin() + rows / 3 * columns;
  EXPECT_EQ(read(share), std::vector<float>(first, first + rows / 3 * columns));
  group->all_gather(part(whole, all));
  std::vector<float> thrice;
  for (int i = 0; i < 3; ++i) thrice.insert(thrice.end(), numbers.begin(), numbers.end());
  EXPECT_EQ(read(all), thrice);
  to->transfer(part(whole, {}));
  from->transfer(part({}, got));
  for (const float value : read(got)) ASSERT_LE(std::abs(value), 0.008F);
  EXPECT_EQ(read(whole), numbers);
  EXPECT_EQ(group->traffic(0).all_reduce_bytes, 4 * rows * columns);
  EXPECT_EQ(group->traffic(0).reduce_scatter_bytes, 4 * rows * columns);
  EXPECT_EQ(group->traffic(0).all_gather_bytes, 4 * rows * columns);
  EXPECT_EQ(to->traffic(0).sent_bytes, 4 * rows * columns);
  EXPECT_EQ(group->traffic(0).calls, 3);
  for (Tensor* tensor : {&whole, &share, &all, &got}) device.release(*stream, *tensor);
  device.synchronize();
}

// No time at all is less than any copy takes.
TEST_F(GpuReplay, ACallThatTakesLongerThanItsLinksSaysSo) {
  const auto backend =
      make_replay_backend({.world_size = 2, .deadline_s = 60}, {.rank = 0, .times = all_take({0, 0})});
  Device& device = backend->device(0);
  const auto stream = device.make_stream("tp", StreamPriority::communication);
  const auto group = backend->group("p2p", {0, 1}, GroupUse::transfers);
  auto& emulated = dynamic_cast<EmulatedGroup&>(*group);
  EXPECT_EQ(emulated.take_use().calls, 0);
  Tensor tensor = device.allocate(*stream, MemoryKind::working, DType::f32, 1024, 4096);
  const std::vector<Part> parts{{stream.get(), tensor, {}}};
  for (int i = 0; i < 3; ++i) group->transfer(parts);
  device.synchronize();
  const EmulatedUse use = emulated.take_use();
  EXPECT_EQ(use.calls, 3);
  EXPECT_GT(use.latest_s, 0);
  EXPECT_LT(use.latest_s, use.late_s);
  EXPECT_LE(use.late_s, 3 * use.latest_s);
  EXPECT_LT(use.late_s, 60);
  EXPECT_EQ(emulated.take_use().calls, 0) << "since it was last asked";
  device.release(*stream, tensor);
  device.synchronize();
}

TEST_F(GpuReplay, ACallBeyondTheDeadlineIsRefused) {
  const auto backend =
      make_replay_backend({.world_size = 2, .deadline_s = 5}, {.rank = 0, .times = all_take({1000, 2000})});
  Device& device = backend->device(0);
  const auto stream = device.make_stream("send to rank 1", StreamPriority::communication);
  const auto group = backend->group("p2p", {0, 1}, GroupUse::transfers);
  const Tensor tensor = device.allocate(*stream, MemoryKind::working, DType::bf16, 2, 8);
  const std::vector<Part> parts{{stream.get(), tensor, {}}};
  EXPECT_THAT(error_of<std::runtime_error>([&] { group->transfer(parts); }),
              HasSubstr("transfer of 2 x 8 bf16 takes 3000 s over its emulated link"));
}

}  // namespace
}  // namespace stp::cuda
