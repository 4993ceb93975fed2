#include "all_cores.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "interrupt.h"

namespace stp {

void on_all_cores(size_t count, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next{0};
  std::vector<std::exception_ptr> errors(count);
  const auto take = [&] {
    for (size_t i = next++; i < count && !interrupted(); i = next++) try {
        work(i);
      } catch (...) {
        errors[i] = std::current_exception();
        next = count;
      }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t core = 1; core < std::min<size_t>(count, std::thread::hardware_concurrency()); ++core)
      threads.emplace_back(take);
    take();
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace stp
