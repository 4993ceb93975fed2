// Ranks of a world as threads of this process, each with an NCCL session of its own; NCCL and the device's
// streams are stand-ins.
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "stp/device/run_context.h"
#include "stp/processes/rendezvous.h"
#include "support/fake_nccl.h"

namespace stp::testing_support {

using namespace cuda;

inline cudaStream_t stream(int number) {
  return reinterpret_cast<cudaStream_t>(static_cast<intptr_t>(number));
}
inline std::string place(int rank) { return "rank " + std::to_string(rank) + ", tp, F0.1"; }

struct NcclWorld {
  FakeNccl nccl;
  NcclOptions options;
  std::function<void(int rank, NcclOptions&)> retune = [](int, NcclOptions&) {};
  double deadline_s = 20;
};

using NcclProgram = std::function<void(int rank, NcclSession&, RunContext&)>;

/// How each rank ended: "" or its failure. `program` may throw what a stream's closure would.
inline std::vector<std::string> outcomes(NcclWorld& world, int ranks, const NcclProgram& program) {
  Listener listener("127.0.0.1", 0);
  const uint16_t port = listener.port();
  std::vector<std::string> texts(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      RunContext run(world.deadline_s);
      std::optional<Listener> own;
      if (rank == 0) own = std::move(listener);
      Rendezvous rendezvous({.rank = rank, .world_size = ranks, .port = port}, run.guard, {}, std::move(own));
      {
        NcclOptions options = world.options;
        world.retune(rank, options);
        NcclSession session(world.nccl.api(rank), world.nccl.device(rank), rendezvous, run.guard, options);
        try {
          program(rank, session, run);
        } catch (const Cancelled&) {
        } catch (const std::exception& error) {
          run.guard.fail(place(rank) + ": " + error.what());
        }
      }
      try {
        rendezvous.end();
      } catch (const Cancelled&) {
      }
      texts[rank] = run.guard.failure();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return texts;
}

/// What a rank does that notices nothing by itself.
inline void wait_for_failure(const RunGuard& guard) {
  while (!guard.failed()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

}  // namespace stp::testing_support
