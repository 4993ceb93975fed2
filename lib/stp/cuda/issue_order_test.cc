// What is issued, in which order, and how it ends where something is missing. No device is needed: work notes
// that it was issued, under the order's own mutex, as the thread sanitizer would say if it were not. No test
// depends on how long anything takes: deadlines here are either never reached or always.
#include "stp/cuda/issue_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "support/effort.h"

namespace stp::cuda {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kNever = 3600, kSoon = 0.1;
constexpr std::optional<uint32_t> kNoOp;

class Order : public testing::Test {
 protected:
  explicit Order(int ranks = 2, double deadline = kNever) : run_(deadline), order_(run_, ranks) {}

  IssueWork note(const std::string& what) {
    return [this, what] { log_.push_back(what); };
  }
  std::unique_ptr<IssueQueue> queue(int rank, const std::string& name) {
    return order_.make_queue(rank, name);
  }
  std::shared_ptr<JointStep> joint(const std::string& name, std::vector<int> ranks) {
    return std::make_shared<JointStep>(name, std::move(ranks), note(name));
  }
  // Waits as a host does that synchronises.
  void finish(IssueQueue& queue, int rank) {
    const auto end = std::make_shared<IssuePoint>();
    queue.record(kNoOp, end, [] {});
    order_.wait_for(rank, "for " + queue.name(), *end, [] { return true; });
  }

  RunContext run_;
  IssueOrder order_;
  std::vector<std::string> log_;
};

TEST_F(Order, WorkIsIssuedAtOnceAndInOrder) {
  const auto compute = queue(0, "compute");
  compute->push(kNoOp, note("a"));
  EXPECT_THAT(log_, ElementsAre("a"));
  compute->push(kNoOp, note("b"));
  compute->push(kNoOp, note("c"));
  EXPECT_THAT(log_, ElementsAre("a", "b", "c"));
}

TEST_F(Order, AWaitIsIssuedBehindItsRecord) {
  const auto first = queue(0, "first"), second = queue(0, "second"), third = queue(1, "third");
  const auto hold = joint("hold", {0, 1});
  const auto point = std::make_shared<IssuePoint>();
  first->join(kNoOp, hold, 0);  // nothing behind it leaves `first`
  first->record(kNoOp, point, note("record"));
  second->wait(kNoOp, point, note("wait"));
  second->push(kNoOp, note("behind the wait"));
  third->wait(kNoOp, point, note("another wait"));
  EXPECT_THAT(log_, ElementsAre());
  const auto other = queue(1, "other");
  other->join(kNoOp, hold, 1);
  ASSERT_EQ(log_.size(), 5U);
  EXPECT_EQ(log_[0], "hold");
  EXPECT_EQ(log_[1], "record");
  EXPECT_THAT(log_, testing::IsSupersetOf({"wait", "behind the wait", "another wait"}));
  const auto at = [&](const char* what) { return std::find(log_.begin(), log_.end(), what) - log_.begin(); };
  EXPECT_LT(at("wait"), at("behind the wait"));
}

TEST_F(Order, AWaitForWhatIsIssuedIsIssuedAtOnce) {
  const auto first = queue(0, "first"), second = queue(0, "second");
  const auto point = std::make_shared<IssuePoint>();
  first->record(kNoOp, point, note("record"));
  second->wait(kNoOp, point, note("wait"));
  EXPECT_THAT(log_, ElementsAre("record", "wait"));
}

TEST_F(Order, AJointStepIsIssuedOnceWhenAllPartiesAreThere) {
  const auto a = queue(0, "tp"), b = queue(1, "tp"), c = queue(1, "compute");
  const auto call = joint("all-reduce", {0, 1});
  const auto hold = std::make_shared<IssuePoint>();
  a->join(kNoOp, call, 0);
  a->push(kNoOp, note("behind it on rank 0"));
  b->wait(kNoOp, hold, note("wait"));
  b->join(kNoOp, call, 1);  // there, but not next
  b->push(kNoOp, note("behind it on rank 1"));
  EXPECT_THAT(log_, ElementsAre());
  c->record(kNoOp, hold, note("record"));
  ASSERT_EQ(log_.size(), 5U);
  log_.resize(3);
  EXPECT_THAT(log_, ElementsAre("record", "wait", "all-reduce"));
}

TEST_F(Order, AReceivePostedEarlyHoldsItsOwnQueueAlone) {
  const auto receive = queue(1, "receive"), compute = queue(1, "compute"), send = queue(0, "send");
  const auto transfer = joint("transfer", {0, 1});
  const auto arrived = std::make_shared<IssuePoint>();
  receive->join(kNoOp, transfer, 1);
  receive->record(kNoOp, arrived, note("arrived"));
  compute->push(kNoOp, note("compute"));
  EXPECT_THAT(log_, ElementsAre("compute"));
  compute->wait(kNoOp, arrived, note("taken"));
  send->join(kNoOp, transfer, 0);
  EXPECT_THAT(log_, ElementsAre("compute", "transfer", "arrived", "taken"));
}

TEST_F(Order, TransfersOfALinkMeetInTheirOrder) {
  const auto send = queue(0, "send"), receive = queue(1, "receive");
  std::vector<std::shared_ptr<JointStep>> transfers;
  for (int i = 0; i < 3; ++i) transfers.push_back(joint(std::to_string(i), {0, 1}));
  for (const auto& each : transfers) receive->join(kNoOp, each, 1);
  for (const auto& each : transfers) send->join(kNoOp, each, 0);
  EXPECT_THAT(log_, ElementsAre("0", "1", "2"));
}

TEST_F(Order, WorkThatThrowsFailsTheRunAndEndsAllIssuing) {
  run_.describe_with([](int rank, uint32_t op) { return "op " + std::to_string(10 * rank + op); });
  const auto compute = queue(1, "compute"), other = queue(0, "compute");
  compute->push(7, [] { throw std::runtime_error("no such kernel"); });
  compute->push(8, note("behind it"));
  other->push(kNoOp, note("elsewhere"));
  EXPECT_THAT(log_, ElementsAre());
  EXPECT_EQ(run_.guard.failure(), "rank 1, compute, op 17: no such kernel");
  EXPECT_THROW(finish(*other, 0), Cancelled);
}

TEST_F(Order, AJointStepThatThrowsNamesAPartysPlace) {
  const auto a = queue(0, "tp"), b = queue(1, "tp");
  const auto call = std::make_shared<JointStep>("all-reduce", std::vector<int>{0, 1},
                                                [] { throw std::runtime_error("sizes differ"); });
  b->join(4, call, 1);
  a->join(3, call, 0);
  EXPECT_EQ(run_.guard.failure(), "rank 0, tp, op 3: sizes differ");
}

TEST_F(Order, NothingIsTakenOnceTheRunHasFailed) {
  const auto compute = queue(0, "compute");
  run_.guard.fail("something else");
  compute->push(kNoOp, note("late"));
  EXPECT_THAT(log_, ElementsAre());
  EXPECT_THROW(finish(*compute, 0), Cancelled);
}

TEST_F(Order, AQueueMayEndWithWorkThatNobodyIssues) {
  const auto point = std::make_shared<IssuePoint>();
  const auto call = joint("all-reduce", {0, 1});
  const auto peer = queue(1, "tp"), recorder = queue(0, "recorder");
  {
    const auto waiting = queue(0, "waiting"), calling = queue(0, "calling");
    waiting->wait(kNoOp, point, note("wait"));
    calling->join(kNoOp, call, 0);
  }
  recorder->record(kNoOp, point, note("record"));
  peer->join(kNoOp, call, 1);
  EXPECT_THAT(log_, ElementsAre("record"));
}

// The hosts of all ranks wait: nobody is left who could push what is missing, and no deadline need pass.
TEST_F(Order, APartyThatNeverComesIsNamedWhenAllRanksWait) {
  const auto a = queue(0, "tp"), b = queue(1, "tp"), compute = queue(1, "compute");
  a->join(5, joint("call 0 of group tp", {0, 1}), 0);
  compute->wait(6, std::make_shared<IssuePoint>(), note("wait"));
  std::thread other([&] { EXPECT_THROW(finish(*compute, 1), Cancelled); });
  EXPECT_THROW(finish(*a, 0), Cancelled);
  other.join();
  EXPECT_EQ(run_.guard.failure(),
            "all ranks wait, and nothing more can be issued: rank 0, tp, op 5 waits in call 0 of group tp "
            "for rank 1; rank 1, compute, op 6 waits for an event that nobody records");
}

TEST_F(Order, QueuesThatWaitForEachOtherAreAllNamed) {
  const auto a = queue(0, "send"), b = queue(1, "send");
  const auto first = joint("transfer 0 to 1", {0, 1}), second = joint("transfer 1 to 0", {1, 0});
  a->join(kNoOp, first, 0);
  a->join(kNoOp, second, 1);
  b->join(kNoOp, second, 0);
  b->join(kNoOp, first, 1);
  std::thread other([&] { EXPECT_THROW(finish(*b, 1), Cancelled); });
  EXPECT_THROW(finish(*a, 0), Cancelled);
  other.join();
  EXPECT_THAT(run_.guard.failure(), AllOf(HasSubstr("rank 0, send waits in transfer 0 to 1 for rank 1"),
                                          HasSubstr("rank 1, send waits in transfer 1 to 0 for rank 0")));
}

TEST_F(Order, ARankThatHasNotComeYetIsWaitedFor) {
  const auto a = queue(0, "tp"), b = queue(1, "tp");
  const auto call = joint("all-reduce", {0, 1});
  a->join(kNoOp, call, 0);
  std::thread other([&] { b->join(kNoOp, call, 1); });
  finish(*a, 0);
  other.join();
  finish(*b, 1);
  EXPECT_THAT(log_, ElementsAre("all-reduce"));
}

struct SoonOrder : Order {
  SoonOrder() : Order(2, kSoon) {}
};

TEST_F(SoonOrder, APartyThatNeverComesEndsTheRunByTheDeadline) {
  const auto a = queue(0, "tp");
  a->join(5, joint("call 0 of group tp", {0, 1}), 0);
  EXPECT_THROW(finish(*a, 0), Cancelled);
  EXPECT_THAT(run_.guard.failure(),
              AllOf(HasSubstr("rank 0, host waits for tp; rank 0, tp, op 5 waits in call 0 of group tp for "
                              "rank 1"),
                    HasSubstr("nothing moved")));
}

// A device that notes what it is shown, and is done with everything when it is told so.
class FakeDevice : public IssueDevice {
 public:
  void begin(int rank, std::optional<uint32_t> op) override {
    EXPECT_FALSE(open_);
    open_ = true;
    shown.emplace_back(rank, op);
  }
  void end() override {
    EXPECT_TRUE(open_);
    open_ = false;
  }
  std::string unfinished() override { return words; }
  [[nodiscard]] bool open() const { return open_; }

  std::vector<std::pair<int, std::optional<uint32_t>>> shown;
  std::string words;

 private:
  bool open_ = false;
};

TEST(OrderOfADevice, IsShownEachOpOnceWhileItIsIssued) {
  RunContext run(kNever);
  FakeDevice device;
  IssueOrder order(run, 2, &device);
  const auto compute = order.make_queue(0, "compute"), tp = order.make_queue(1, "tp");
  const auto hold = std::make_shared<IssuePoint>();
  const auto nothing = [] {};
  compute->wait(1, hold, nothing);
  compute->push(1, nothing);
  compute->push(2, nothing);
  EXPECT_TRUE(device.shown.empty());
  tp->record(3, hold, nothing);
  using Shown = std::pair<int, std::optional<uint32_t>>;
  EXPECT_THAT(device.shown, ElementsAre(Shown{1, 3}, Shown{0, 1}, Shown{0, 2}));
  EXPECT_FALSE(device.open());
}

TEST(OrderOfADevice, WhatTheDeviceDoesNotFinishIsNamedAtTheDeadline) {
  RunContext run(kSoon);
  FakeDevice device;
  device.words = "rank 3, compute, F0.1";
  IssueOrder order(run, 1, &device);
  EXPECT_THROW(order.wait(
                   0, "for compute", [] { return true; }, [] { return false; }),
               Cancelled);
  EXPECT_THAT(run.guard.failure(), HasSubstr("rank 3, compute, F0.1 is not done; rank 0, host waits for "
                                             "compute: nothing moved"));
}

// Whoever waits asks the device for room on behalf of all queues; it comes a piece at a time.
TEST(OrderOfADevice, WithoutRoomTakesNothingUntilItHasSome) {
  RunContext run(kNever);
  IssueOrder order(run, 2);
  int room = 2, issued = 0;
  bool works = false;
  const auto full = order.make_queue(0, "full", [&] {
    if (works) ++room;
    return issued < room;
  });
  const auto other = order.make_queue(1, "other");
  const auto joined = std::make_shared<IssuePoint>();
  for (int i = 0; i < 5; ++i) full->push(kNoOp, [&] { ++issued; });
  const auto call =
      std::make_shared<JointStep>("all-reduce", std::vector<int>{0, 1}, [&] { EXPECT_EQ(issued++, 5); });
  full->join(kNoOp, call, 0);
  other->join(kNoOp, call, 1);
  other->record(kNoOp, joined, [&] { EXPECT_EQ(issued, 6); });
  EXPECT_EQ(issued, 2);
  works = true;
  order.wait_for(1, "for other", *joined, [] { return true; });
  EXPECT_EQ(issued, 6);
}

TEST(OrderOfADevice, GivesRoomWhileAllHostsWait) {
  RunContext run(kNever);
  IssueOrder order(run, 1);
  int asked = 0, issued = 0;
  const auto full = order.make_queue(0, "full", [&] { return ++asked % 3 == 0; });
  for (int i = 0; i < 5; ++i) full->push(kNoOp, [&] { ++issued; });
  const auto end = std::make_shared<IssuePoint>();
  full->record(kNoOp, end, [&] { EXPECT_EQ(issued, 5); });
  order.wait_for(0, "for full", *end, [] { return true; });
  EXPECT_EQ(issued, 5);
}

// Processes that push their collectives in one order must have them issued in one order.
TEST(OrderOfADevice, OfOneHostIsThatOfThePushesHoweverFullQueuesAre) {
  for (uint32_t seed = 1; seed <= 30; seed += kStride) {
    std::mt19937 random(seed);
    RunContext run(kNever);
    IssueOrder order(run, 1);
    std::vector<std::unique_ptr<IssueQueue>> queues;
    for (int i = 0; i < 3; ++i)
      queues.push_back(
          order.make_queue(0, "queue " + std::to_string(i), [&random] { return random() % 4 == 0; }));
    constexpr int kSteps = 200;
    std::vector<int> issued, pushed(kSteps);
    std::iota(pushed.begin(), pushed.end(), 0);
    for (const int step : pushed)
      queues[random() % 3]->push(kNoOp, [&issued, step] { issued.push_back(step); });
    const auto end = std::make_shared<IssuePoint>();
    queues[0]->record(kNoOp, end, [] {});
    order.wait_for(0, "for the end", *end, [] { return true; });
    EXPECT_EQ(issued, pushed);
  }
}

TEST(OrderOfADevice, AJointStepWaitsForRoomOfAllItsParties) {
  RunContext run(kNever);
  IssueOrder order(run, 2);
  bool room = false, issued = false;
  const auto full = order.make_queue(0, "full", [&] { return room; });
  const auto other = order.make_queue(1, "other", [] { return true; });
  const auto call = std::make_shared<JointStep>("all-reduce", std::vector<int>{0, 1}, [&] { issued = true; });
  full->join(kNoOp, call, 0);
  other->join(kNoOp, call, 1);
  EXPECT_FALSE(issued);
  room = true;
  other->push(kNoOp, [&] { EXPECT_TRUE(issued); });  // who pushes asks again
  EXPECT_TRUE(issued);
}

constexpr size_t kFew = 4;

TEST(FullQueue, MakesItsHostWaitUntilItMoves) {
  RunContext run(kNever);
  IssueOrder order(run, 2, nullptr, kFew);
  const auto a = order.make_queue(0, "a"), b = order.make_queue(1, "b");
  const auto call = std::make_shared<JointStep>("all-reduce", std::vector<int>{0, 1}, [] {});
  a->join(kNoOp, call, 0);
  int issued = 0;
  std::thread host([&] {
    for (int i = 0; i < 100; ++i) a->push(kNoOp, [&] { ++issued; });
  });
  b->join(kNoOp, call, 1);
  host.join();
  EXPECT_EQ(issued, 100);
}

TEST(FullQueue, ThatNothingWillEmptyFailsTheRun) {
  RunContext run(kNever);
  IssueOrder order(run, 1, nullptr, kFew);
  const auto a = order.make_queue(0, "a");
  a->join(3, std::make_shared<JointStep>("call 0 of group tp", std::vector<int>{0, 1}, [] {}), 0);
  for (size_t i = 1; i <= kFew; ++i) a->push(kNoOp, [] {});
  EXPECT_THAT(run.guard.failure(),
              AllOf(HasSubstr("nothing more can be issued"),
                    HasSubstr("rank 0, a, op 3 waits in call 0 of group tp for rank 1")));
}

// Random programs: ranks with queues for work, for collectives, and for each link. A rank's host pushes its
// share of one global order; receives are posted early. Whatever the hosts' pace, what is issued must respect
// every queue's order, every event and every joint step.
class RandomProgram {
 public:
  RandomProgram(uint32_t seed, int ranks, int length) : random_(seed), hosts_(ranks) {
    for (int i = 0; i < length; ++i) {
      const int rank = below(ranks), kind = below(10);
      if (kind < 4) {
        step(rank, below(kWorkQueues), {});
      } else if (kind < 6) {
        events_.emplace_back(rank, step(rank, below(kWorkQueues), {}));
      } else if (kind < 8) {
        wait_for_some_event(rank);
      } else if (kind == 8 && ranks > 1) {
        collective();
      } else if (ranks > 1) {
        transfer(rank, (rank + 1 + below(ranks - 1)) % ranks);
      }
    }
    post_receives_early();
  }

  // Pushes all on one thread a host, or on one thread in random turns.
  void run(IssueOrder& order, bool threads) {
    std::vector<std::map<int, std::unique_ptr<IssueQueue>>> queues(hosts_.size());
    points_.clear();
    joints_.clear();
    log_.clear();
    for (size_t i = 0; i < steps_.size(); ++i) points_.push_back(std::make_shared<IssuePoint>());
    for (size_t joint = 0; joint < parties_.size(); ++joint) {
      std::vector<int> ranks;
      for (const int party : parties_[joint]) ranks.push_back(steps_[party].rank);
      joints_.push_back(std::make_shared<JointStep>("joint " + std::to_string(joint), ranks, [this, joint] {
        for (const int party : parties_[joint]) log_.push_back(party);
      }));
    }
    for (int rank = 0; rank < static_cast<int>(hosts_.size()); ++rank)
      for (const int id : hosts_[rank])
        if (auto& queue = queues[rank][steps_[id].queue]; !queue)
          queue = order.make_queue(rank, "queue " + std::to_string(steps_[id].queue));
    const auto push = [&](int rank, int id) { push_step(*queues[rank][steps_[id].queue], id); };
    const auto finish = [&](int rank) {
      for (const auto& [number, queue] : queues[rank]) {
        const auto end = std::make_shared<IssuePoint>();
        queue->record(kNoOp, end, [] {});
        order.wait_for(rank, "for the end", *end, [] { return true; });
      }
    };
    if (threads) {
      std::vector<std::thread> hosts;
      for (int rank = 0; rank < static_cast<int>(hosts_.size()); ++rank)
        hosts.emplace_back([&, rank] {
          for (const int id : hosts_[rank]) push(rank, id);
          finish(rank);
        });
      for (std::thread& host : hosts) host.join();
      return;
    }
    std::vector<size_t> next(hosts_.size());
    for (size_t left = all_pushes(); left > 0; --left) {
      int rank = below(static_cast<int>(hosts_.size()));
      while (next[rank] == hosts_[rank].size()) rank = (rank + 1) % static_cast<int>(hosts_.size());
      push(rank, hosts_[rank][next[rank]++]);
    }
    for (int rank = 0; rank < static_cast<int>(hosts_.size()); ++rank) finish(rank);
  }

  void expect_in_order() const {
    ASSERT_EQ(log_.size(), steps_.size());
    std::vector<int> at(steps_.size(), -1);
    for (size_t i = 0; i < log_.size(); ++i) {
      ASSERT_EQ(at[log_[i]], -1) << "issued twice";
      at[log_[i]] = static_cast<int>(i);
    }
    std::map<std::pair<int, int>, int> latest;  // by rank and queue
    for (const auto& host : hosts_)
      for (const int id : host) {
        const auto [before, first] = latest.try_emplace({steps_[id].rank, steps_[id].queue}, id);
        if (!first) {
          EXPECT_LT(at[before->second], at[id]) << "the order of a queue";
        }
        before->second = id;
        if (steps_[id].awaits) {
          EXPECT_LT(at[*steps_[id].awaits], at[id]) << "a wait";
        }
      }
    for (const auto& parties : parties_)
      for (size_t i = 1; i < parties.size(); ++i) EXPECT_EQ(at[parties[i]], at[parties[0]] + int(i));
  }

 private:
  static constexpr int kWorkQueues = 3, kCollectives = 3, kLinks = 4;  // queues are numbered in this order
  struct Step {
    int rank, queue;
    std::optional<int> awaits, joint;
    size_t party = 0;
  };

  int below(int limit) { return static_cast<int>(random_() % static_cast<uint32_t>(limit)); }
  int step(int rank, int queue, std::optional<int> awaits) {
    steps_.push_back({rank, queue, awaits, {}});
    hosts_[rank].push_back(static_cast<int>(steps_.size()) - 1);
    return hosts_[rank].back();
  }
  void wait_for_some_event(int rank) {
    std::vector<int> own;
    for (const auto& [of, id] : events_)
      if (of == rank) own.push_back(id);
    if (own.empty()) return;
    step(rank, below(kWorkQueues + 1), own[below(static_cast<int>(own.size()))]);
  }
  void join(int id, int joint) {
    steps_[id].joint = joint;
    steps_[id].party = parties_[joint].size();
    parties_[joint].push_back(id);
  }
  void collective() {
    const int joint = static_cast<int>(parties_.size());
    parties_.emplace_back();
    std::set<int> members;
    while (members.size() < 2 || below(2) == 0) {
      members.insert(below(static_cast<int>(hosts_.size())));
      if (members.size() == hosts_.size()) break;
    }
    for (const int rank : members) {
      const int id = step(rank, kCollectives, {});
      join(id, joint);
      events_.emplace_back(rank, id);
    }
  }
  void transfer(int from, int to) {
    const int joint = static_cast<int>(parties_.size()), count = static_cast<int>(hosts_.size());
    parties_.emplace_back();
    join(step(from, kLinks + to, {}), joint);
    const int received = step(to, kLinks + count + from, {});
    join(received, joint);
    receives_.insert(received);
    events_.emplace_back(to, received);
  }
  void post_receives_early() {
    for (auto& host : hosts_)
      for (size_t i = 1; i < host.size(); ++i)
        for (size_t at = i; at > 0 && receives_.contains(host[at]) && below(4) != 0; --at) {
          if (steps_[host[at - 1]].queue == steps_[host[at]].queue) break;
          std::swap(host[at - 1], host[at]);
        }
  }
  void push_step(IssueQueue& queue, int id) {
    const Step& step = steps_[id];
    if (step.joint) {
      queue.join(static_cast<uint32_t>(id), joints_[*step.joint], step.party);
      queue.record(static_cast<uint32_t>(id), points_[id], [] {});
    } else if (step.awaits) {
      queue.wait(static_cast<uint32_t>(id), points_[*step.awaits], [this, id] { log_.push_back(id); });
    } else {
      queue.record(static_cast<uint32_t>(id), points_[id], [this, id] { log_.push_back(id); });
    }
  }
  [[nodiscard]] size_t all_pushes() const {
    size_t count = 0;
    for (const auto& host : hosts_) count += host.size();
    return count;
  }

  std::mt19937 random_;
  std::vector<Step> steps_;
  std::vector<std::vector<int>> hosts_;      // by rank: steps, as the host pushes them
  std::vector<std::vector<int>> parties_;    // by joint step
  std::vector<std::pair<int, int>> events_;  // rank and step
  std::set<int> receives_;
  std::vector<std::shared_ptr<IssuePoint>> points_;
  std::vector<std::shared_ptr<JointStep>> joints_;
  std::vector<int> log_;
};

TEST(RandomPrograms, AreIssuedInATopologicalOrder) {
  for (uint32_t seed = 0; seed < 200; seed += kStride) {
    const int ranks = 1 + static_cast<int>(seed % 6);
    RandomProgram program(seed, ranks, 400);
    SCOPED_TRACE("seed " + std::to_string(seed));
    for (const bool threads : {false, true}) {
      RunContext run(kNever);
      IssueOrder order(run, ranks);
      program.run(order, threads);
      ASSERT_FALSE(run.guard.failed()) << run.guard.failure();
      program.expect_in_order();
    }
  }
}

// Queues of few steps: hosts wait for each other now and then.
TEST(RandomPrograms, GoThroughShortQueues) {
  for (uint32_t seed = 0; seed < 50; seed += kStride) {
    const int ranks = 2 + static_cast<int>(seed % 3);
    RandomProgram program(seed, ranks, 400);
    SCOPED_TRACE("seed " + std::to_string(seed));
    RunContext run(kNever);
    IssueOrder order(run, ranks, nullptr, 64);
    program.run(order, true);
    ASSERT_FALSE(run.guard.failed()) << run.guard.failure();
    program.expect_in_order();
  }
}

}  // namespace
}  // namespace stp::cuda
