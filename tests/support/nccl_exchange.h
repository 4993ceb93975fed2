// NCCL among processes that are threads, on the fake CUDA runtime: its calls meet in the runtime's memory,
// whose streams go on in a random order and stand still until all members of a call have come to it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "stp/device/bfloat16.h"
#include "support/fake_cuda.h"
#include "support/fake_nccl.h"

namespace stp::testing_support {

using namespace cuda;

// What calls do, once the streams of all their members are there.
class NcclExchange {
 public:
  void carry_out(const FakeNccl::Call& call, int size, int index) {
    std::shared_ptr<Meeting> meeting;
    {
      // Of transfers each pair and direction counts its own; of collectives all are of one sequence.
      const bool transfer = call.peer >= 0;
      const int from = !transfer ? -1 : call.name == "ncclSend" ? index : call.peer;
      const int to = !transfer ? -1 : call.name == "ncclSend" ? call.peer : index;
      const std::lock_guard lock(mutex_);
      const int number = next_[{call.group, from, to, index}]++;
      auto& found = meetings_[{call.group, from, to, number}];
      if (!found) found = std::make_shared<Meeting>(transfer ? 2 : size);
      meeting = found;
    }
    const size_t party = call.peer < 0 ? static_cast<size_t>(index) : call.name == "ncclSend" ? 0 : 1;
    fake_cuda::launch(call.stream, [meeting, party, call] {
      meeting->calls[party] = call;
      if (++meeting->come == meeting->calls.size()) {
        meet(meeting->calls);
        meeting->done = true;
      }
    });
    fake_cuda::launch_when(
        call.stream, [meeting] { return meeting->done; }, [] {});
  }

 private:
  struct Meeting {  // used by streams alone, one at a time
    explicit Meeting(size_t parties) : calls(parties) {}
    std::vector<FakeNccl::Call> calls;
    size_t come = 0;
    bool done = false;
  };

  static size_t size_of(int type) { return type == ncclFloat64 ? 8 : type == ncclBfloat16 ? 2 : 4; }

  static void meet(const std::vector<FakeNccl::Call>& calls) {
    const FakeNccl::Call& first = calls[0];
    if (first.name == "ncclSend") {
      std::memcpy(const_cast<void*>(calls[1].out), first.in, first.count * size_of(first.type));
    } else if (first.name == "ncclAllReduce") {
      if (first.type == ncclFloat32) reduce<float>(calls);
      if (first.type == ncclFloat64) reduce<double>(calls);
      if (first.type == ncclBfloat16) reduce<Bfloat16>(calls);
    } else {
      ADD_FAILURE() << first.name << " in training";
    }
  }
  template <typename T>
  static void reduce(const std::vector<FakeNccl::Call>& calls) {
    for (size_t i = 0; i < calls[0].count; ++i) {
      auto total = static_cast<Wide<T>>(static_cast<const T*>(calls[0].in)[i]);
      for (size_t party = 1; party < calls.size(); ++party) {
        const auto value = static_cast<Wide<T>>(static_cast<const T*>(calls[party].in)[i]);
        total = calls[0].op == ncclSum ? total + value : std::max(total, value);
      }
      for (const auto& call : calls) static_cast<T*>(const_cast<void*>(call.out))[i] = T(total);
    }
  }

  std::mutex mutex_;
  std::map<std::tuple<int, int, int, int>, int> next_;
  std::map<std::tuple<int, int, int, int>, std::shared_ptr<Meeting>> meetings_;
};

/// What loaded_nccl() gives in programs that are linked with nccl_run_test.cc, whose threads are processes.
extern thread_local std::optional<NcclApi> nccl_of_this_process;

/// All processes of a run, as threads: each takes its own rank's nccl.api().
struct NcclOnHost {
  NcclOnHost() {
    nccl.carry_out = [this](const FakeNccl::Call& call, int size, int index) {
      if (call.name.find("Window") == std::string::npos) exchange.carry_out(call, size, index);
    };
  }
  FakeNccl nccl;
  NcclExchange exchange;
};

}  // namespace stp::testing_support
