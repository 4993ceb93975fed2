#include "stp/processes/progress.h"

#include <sstream>

namespace stp {

std::chrono::duration<double> Idle::time() {
  const auto now = std::chrono::steady_clock::now();
  if (const uint64_t moves_now = moves(); moves_now != seen_ || progress_.working > 0) {
    seen_ = moves_now;
    since_ = now;
  }
  return now - since_;
}

std::string nothing_moved(const std::string& what, std::chrono::duration<double> time) {
  std::ostringstream text;
  text << what << ": nothing moved for " << time.count() << " s";
  return text.str();
}

}  // namespace stp
