// The processes of one run: what they tell each other beside their data.
#pragma once

#include <string>
#include <vector>

namespace stp {

/// All processes make the same calls in one order. This class itself is a run of one process.
class Processes {
 public:
  Processes() = default;
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  virtual ~Processes() = default;

  /// Which process this one is, and how many there are. Process 0 writes results and speaks for all.
  [[nodiscard]] virtual int index() const { return 0; }
  [[nodiscard]] virtual int count() const { return 1; }
  [[nodiscard]] bool is_root() const { return index() == 0; }
  /// Which of the processes of its node this one is: for the choice of a GPU.
  [[nodiscard]] virtual int index_on_node() const { return 0; }
  /// What every process says: at process 0 all their texts, in the processes' order; elsewhere nothing.
  std::vector<std::string> gather(std::string text);
  /// What process 0 says, at all of them.
  std::string broadcast(std::string text);
  /// What the first process of `among` says, at all of those, which alone make the call.
  std::string broadcast(std::string text, const std::vector<int>& among);

 private:
  virtual void send(int to, const std::string& text);
  virtual std::string receive(int from);
};

/// The world ranks that process `index` of `count` drives: as many as the others, or one more or less, the
/// processes one after the other. None where there are more processes than ranks and this is one too many.
std::vector<int> ranks_of_process(int world_size, int index, int count);

}  // namespace stp
