// Progress on a terminal's standard error; silent in a pipe.
#pragma once

#include <cstddef>
#include <string>

namespace stp {

/// "label: 3 of 9", or in a phase "label: 3 of 9, making the schedule". At most one at a time.
class ProgressBar {
 public:
  ProgressBar(std::string label, size_t total);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  /// Other pieces are done, and their phases are over.
  void step(size_t pieces = 1);

 private:
  friend void begin_phase(const std::string& what);
  void show(const std::string& phase) const;

  std::string label_;
  size_t total_, done_ = 0;
  bool shown_;
};

/// Between the phases of a long piece of work: throws Interrupted if a signal was noted, else shows `what`
/// after the progress on the screen, if any. Threads may call it, and step().
void begin_phase(const std::string& what);

}  // namespace stp
