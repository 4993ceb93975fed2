// How the processes of a run find each other: all connect to rank 0, which lets in one of each rank.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "stp/device/run_guard.h"
#include "stp/processes/bootstrap.h"
#include "stp/processes/tcp.h"

namespace stp {

/// What the processes of a run tell each other over their connections to rank 0.
enum class Word : uint32_t {
  hello,    // protocol, rank, world size, run, host, process
  welcome,  // all have come
  refusal,  // text
  meet,     // name, terms, text, members
  met,      // texts
  failure,  // text
  pulse,    // whether something moved
  goodbye,  // comes to no meeting any more, and ends well
  give,     // name of a gather, whether more of its text comes, the next piece of that
};
inline Frame frame(Word word) { return Frame(static_cast<uint32_t>(word)); }

/// The process at the other end.
struct Peer {
  int rank = 0;
  std::string text;  // "rank 3 (node7, process 4711)"
  Connection connection;
  std::chrono::steady_clock::time_point heard = {};
  bool left = false;      // said goodbye
  bool told_all = false;  // nothing more is sent to it
  bool gone = false;      // the connection has ended
};

/// Where rank 0 waits for the others. Whoever else knocks is turned away and harms nobody.
class Door {
 public:
  Door(ProcessPlace place, Listener listener);

  void watch(std::vector<Watched>& watched) const;
  /// The next that says who it is, if there is one by now: one whose rank, world size and run fit, or, with
  /// the reason in `refusal`, one that does not; that is told so already.
  std::optional<Peer> next(std::string& refusal);
  [[nodiscard]] uint16_t port() const { return listener_.port(); }

 private:
  struct Guest {
    Connection connection;
    std::chrono::steady_clock::time_point since;
  };
  std::optional<Peer> admit(Guest& guest, Frame hello, std::string& refusal) const;

  const ProcessPlace place_;
  Listener listener_;
  std::deque<Guest> guests_;  // that have said nothing yet
};

/// Tells `peer` that it is refused.
void refuse(Peer& peer, const std::string& why);

/// Rank 0: waits until all other ranks have come, at most `time`. Throws InputError if one comes twice, or of
/// another world size or run; std::runtime_error if some do not come. All that have come are told.
std::vector<Peer> join_as_host(const ProcessPlace& place, Door& door, std::chrono::duration<double> time);

/// All others: joins rank 0. InputError if it refuses, std::runtime_error if it is not there within `time`.
Peer join_as_guest(const ProcessPlace& place, std::chrono::duration<double> time);

}  // namespace stp
