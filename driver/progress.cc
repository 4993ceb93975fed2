#include "progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <utility>

#include "interrupt.h"

namespace stp {
namespace {

// What stands on the screen; there is one screen, so that phases need not be handed through all layers.
const ProgressBar* on_screen = nullptr;
std::mutex screen;  // pieces of work may run in threads

}  // namespace

ProgressBar::ProgressBar(std::string label, size_t total)
    : label_(std::move(label)), total_(total), shown_(isatty(STDERR_FILENO) == 1) {
  if (!shown_) return;
  on_screen = this;
  show("");
}

ProgressBar::~ProgressBar() {
  if (!shown_) return;
  on_screen = nullptr;
  std::fputs("\r\033[K", stderr);
}

void ProgressBar::step(size_t pieces) {
  const std::lock_guard lock(screen);
  done_ += pieces;
  if (shown_) show("");
}

void ProgressBar::show(const std::string& phase) const {
  std::string text = label_ + ": " + std::to_string(done_) + " of " + std::to_string(total_);
  if (!phase.empty()) text += ", " + phase;
  // A line that the terminal wraps could not be cleared.
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 && text.size() >= size.ws_col)
    text.resize(size.ws_col - 1U);
  std::fprintf(stderr, "\r%s\033[K", text.c_str());
}

void begin_phase(const std::string& what) {
  check_interrupted();
  const std::lock_guard lock(screen);
  if (on_screen != nullptr) on_screen->show(what);
}

}  // namespace stp
