// Collectives among processes, as bin/microbench measures them: the first process runs the benchmarks, the
// others do with it what it decides. On the stand-ins for CUDA and NCCL, with threads for processes.
#include <benchmark/benchmark.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "suite.h"
#include "support/fake_cuda.h"
#include "support/nccl_exchange.h"

namespace stp::cuda {
namespace {

using namespace testing_support;
using testing::Each;

// The repetitions' median.
class Rows : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& report) override {
    for (const Run& row : report)
      if (row.aggregate_name == "median") rows.push_back(row);
  }
  std::vector<Run> rows;
};

microbench::Options options(Rendezvous& processes) {
  microbench::Options all;
  // As of processors: what a GPU is given before each sample would keep the stand-in busy for minutes.
  all.machine = {.backend = "cuda",
                 .processors = 1,
                 .memory_bytes = 1e9,
                 .type = DType::f32,
                 .peers = std::nullopt,
                 .processes = &processes};
  all.ranks = {processes.place().world_size};
  all.quick = true;
  return all;
}

TEST(MicrobenchOfProcesses, TheFirstHasTheOthersDoEverySampleWithIt) {
  fake_cuda::reset(1);
  NcclOnHost world;
  constexpr int kProcesses = 2;
  Listener listener("127.0.0.1", 0);
  const uint16_t port = listener.port();
  Rows reporter;
  std::vector<std::string> failures(kProcesses);
  std::vector<std::thread> processes;
  for (int rank = 0; rank < kProcesses; ++rank)
    processes.emplace_back([&, rank] {
      nccl_of_this_process = world.nccl.api(rank);
      std::optional<Listener> own;
      if (rank == 0) own = std::move(listener);
      RunGuard guard{std::chrono::seconds(60)};
      try {
        Rendezvous rendezvous({.rank = rank, .world_size = kProcesses, .port = port}, guard, {},
                              std::move(own));
        {
          microbench::Suite suite(options(rendezvous));
          microbench::add_collective(suite);
          suite.begin();
          if (rank == 0) {
            char program[] = "test", seldom[] = "--benchmark_repetitions=3",
                 some[] = "--benchmark_filter=(all_reduce|send_receive)/.*/size:(1024|16384)/";
            char* words[] = {program, seldom, some, nullptr};
            int count = 3;
            benchmark::Initialize(&count, words);
            benchmark::RunSpecifiedBenchmarks(&reporter);
            suite.end();
          } else {
            suite.follow();
          }
        }
        rendezvous.end();
      } catch (const Cancelled&) {
        failures[rank] = guard.failure();
      } catch (const std::exception& error) {
        failures[rank] = error.what();
      }
      nccl_of_this_process.reset();
    });
  for (std::thread& process : processes) process.join();
  ASSERT_THAT(failures, Each(""));

  EXPECT_EQ(reporter.rows.size(), 2U * 2);  // calls, sizes
  for (const auto& row : reporter.rows) {
    EXPECT_FALSE(row.error_occurred) << row.error_message;
    const auto& counters = row.counters;
    EXPECT_EQ(counters.at("ranks"), 2);
    // Of two ranks every factor of nccl-tests' is 1.
    EXPECT_NEAR(counters.at("busbw") / counters.at("algbw"), 1, 1e-12);
    EXPECT_NEAR(counters.at("size") / counters.at("algbw") / (1e3 * counters.at("time_us")), 1, 1e-9);
    EXPECT_GT(counters.at("time_us"), 0);
  }
  // Both made the same collectives in the same order, and what one sent the other received.
  const auto made = [&](int rank, const std::string& name) {
    std::vector<size_t> counts;
    for (const FakeNccl::Call& call : world.nccl.calls(rank))
      if (call.name == name) counts.push_back(call.count);
    return counts;
  };
  EXPECT_EQ(made(0, "ncclAllReduce"), made(1, "ncclAllReduce"));
  EXPECT_EQ(made(0, "ncclSend"), made(1, "ncclRecv"));
  EXPECT_GE(made(0, "ncclSend").size(), 4U);
}

}  // namespace
}  // namespace stp::cuda
