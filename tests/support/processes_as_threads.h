// The processes of a run as threads of a test.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "stp/processes/processes.h"

namespace stp::testing_support {

/// What is under way between any two of them.
class Messages {
 public:
  void send(int from, int to, const std::string& text) {
    {
      const std::lock_guard lock(mutex_);
      boxes_[{from, to}].push_back(text);
    }
    changed_.notify_all();
  }
  /// Throws once any of them has ended early.
  std::string receive(int from, int to) {
    std::unique_lock lock(mutex_);
    auto& box = boxes_[{from, to}];
    changed_.wait(lock, [&] { return !box.empty() || ended_early_; });
    if (box.empty()) throw std::runtime_error("another process ended");
    std::string text = std::move(box.front());
    box.pop_front();
    return text;
  }
  void end_early() {
    {
      const std::lock_guard lock(mutex_);
      ended_early_ = true;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<std::string>> boxes_;  // by sender and receiver
  bool ended_early_ = false;
};

class ProcessAsThread : public Processes {
 public:
  ProcessAsThread(Messages& messages, int index, int count)
      : Processes({index, count, index}), messages_(messages) {}

 private:
  void send(int to, const std::string& text) override { messages_.send(index(), to, text); }
  std::string receive(int from) override { return messages_.receive(from, index()); }

  Messages& messages_;
};

/// Runs `process` as so many of them; returns how each ended: "" or what it threw.
inline std::vector<std::string> run_processes(int count, const std::function<void(Processes&)>& process) {
  Messages messages;
  std::vector<std::string> failures(count);
  std::vector<std::thread> threads;
  for (int index = 0; index < count; ++index)
    threads.emplace_back([&, index] {
      ProcessAsThread own(messages, index, count);
      try {
        process(own);
      } catch (const std::exception& error) {
        failures[index] = error.what();
        messages.end_early();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return failures;
}

}  // namespace stp::testing_support
