// What ties the processes of a run together beside their data: they join rank 0 over TCP, found groups by
// meeting there, and end together: the failure of one, or its death, is soon that of all.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stp/device/run_guard.h"
#include "stp/processes/bootstrap.h"
#include "stp/processes/meetings.h"
#include "stp/processes/tcp.h"

namespace stp {

struct RendezvousOptions {
  double join_s = 120;    // within which all processes must come
  double silence_s = 30;  // a process that gives no sign of life for so long counts as dead
};

/// One per process. While it is there
///   - a failure that any process's guard takes down is handed to the guards of all;
///   - a process whose connection ends without a goodbye fails them all, and is named;
///   - progress of one puts off the deadlines of all.
class Rendezvous {
 public:
  /// Waits until all processes have come. `guard` outlives this. InputError if two have one rank, or one is
  /// of another world size or run; std::runtime_error that names who is missing. `listener`: rank 0's, where
  /// it listens already.
  Rendezvous(const ProcessPlace& place, RunGuard& guard, const RendezvousOptions& options = {},
             std::optional<Listener> listener = std::nullopt);
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  /// Fails the run if end() was not called. Waits, for 2 s at the most, until the others have heard it.
  ~Rendezvous();

  /// Waits for all members of the group, and returns their texts in the members' order. Fails the run, with
  /// an error that names ranks and groups, if they can never meet (Meetings). Throws Stopped if the run
  /// fails.
  std::vector<std::string> meet(const Invitation& invitation);

  /// What every process says at this point: at rank 0 all their texts, of any length, in the order of their
  /// ranks; nothing at the others, which do not wait. All come to their gathers in one order; `name` says
  /// which it is. Fails the run, with an error that names ranks, if they do not. Throws Stopped if the run
  /// fails.
  std::vector<std::string> gather(const std::string& name, std::string text);

  /// This process has done its part. Rank 0 waits until all others have; they wait until
  /// what they gave is under way to it.
  void end();

  [[nodiscard]] const ProcessPlace& place() const;
  [[nodiscard]] RunGuard& guard() const;

 private:
  class Line;
  std::unique_ptr<Line> line_;
};

}  // namespace stp
