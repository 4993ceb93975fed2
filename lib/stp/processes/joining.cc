#include "stp/processes/joining.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <thread>
#include <utility>

#include "stp/base/error.h"

namespace stp {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int64_t kProtocol = 2;
constexpr milliseconds kTick{50};
constexpr milliseconds kConnect{1000};
/// How long a connection may say nothing before it is dropped, and how many may stand there.
constexpr std::chrono::seconds kPatience{10};
constexpr size_t kGuests = 64;
constexpr milliseconds kFlush{500};
/// How much longer a guest waits than rank 0, who knows better why not all come.
constexpr std::chrono::seconds kMargin{10};

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

std::string name_of(int64_t rank) { return "rank " + std::to_string(rank); }

std::string seconds_text(std::chrono::duration<double> time) {
  std::ostringstream text;
  text << time.count() << " s";
  return text.str();
}

// Sends what stands in the queue, as far as that can be done at once.
void flush_for(Connection& connection, milliseconds time) {
  const auto until = Clock::now() + time;
  while (connection.flush() && connection.has_output() && Clock::now() < until) {
    std::vector<Watched> watched{{connection.fd(), true}};
    wait_for_any(watched, kTick);
  }
}

}  // namespace

Door::Door(ProcessPlace place, Listener listener)
    : place_(std::move(place)), listener_(std::move(listener)) {}

void Door::watch(std::vector<Watched>& watched) const {
  watched.push_back({listener_.fd(), false});
  for (const Guest& guest : guests_) watched.push_back({guest.connection.fd(), false});
}

std::optional<Peer> Door::next(std::string& refusal) {
  while (auto connection = listener_.accept())
    if (guests_.size() < kGuests) guests_.push_back({std::move(*connection), Clock::now()});
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    const bool open = guest->connection.fill();
    try {
      if (auto hello = guest->connection.next()) {
        auto peer = admit(*guest, std::move(*hello), refusal);
        guests_.erase(guest);
        return peer;
      }
    } catch (const BadFrame&) {  // a stranger
      guest = guests_.erase(guest);
      continue;
    }
    const bool stays = open && Clock::now() - guest->since < kPatience;
    guest = stays ? std::next(guest) : guests_.erase(guest);
  }
  return std::nullopt;
}

std::optional<Peer> Door::admit(Guest& guest, Frame hello, std::string& refusal) const {
  if (hello.kind() != static_cast<uint32_t>(Word::hello)) throw BadFrame("no greeting");
  const int64_t protocol = hello.number();
  if (protocol != kProtocol) throw BadFrame("another version's greeting");
  const int64_t rank = hello.number(), world_size = hello.number();
  const std::string run = hello.text(), host = hello.text();
  const std::string text = name_of(rank) + " (" + host + ", process " + std::to_string(hello.number()) + ")";
  hello.end();
  Peer peer{static_cast<int>(rank), text, std::move(guest.connection), Clock::now()};
  if (world_size != place_.world_size)
    refusal = text + " was started in a world of " + std::to_string(world_size) + " ranks, rank 0 of " +
              std::to_string(place_.world_size);
  else if (rank < 0 || rank >= world_size)
    refusal = text + " is beyond the world's " + std::to_string(world_size) + " ranks";
  else if (run != place_.run)
    refusal = text + " belongs to the run \"" + run + "\", rank 0 to \"" + place_.run + "\"";
  else if (rank == 0)
    refusal = text + " is there once already: " + host_name() + ", process " + std::to_string(getpid());
  if (!refusal.empty()) refuse(peer, refusal);
  return peer;
}

void refuse(Peer& peer, const std::string& why) {
  peer.connection.push(frame(Word::refusal).add(why));
  flush_for(peer.connection, kFlush);
}

std::vector<Peer> join_as_host(const ProcessPlace& place, Door& door, std::chrono::duration<double> time) {
  std::vector<Peer> peers;
  const auto until = Clock::now() + time;
  const auto found = [&](int rank) {
    return std::find_if(peers.begin(), peers.end(), [&](const Peer& peer) { return peer.rank == rank; });
  };
  const auto give_up = [&](const std::string& why) {
    for (Peer& peer : peers) refuse(peer, why);
  };
  while (static_cast<int>(peers.size()) + 1 < place.world_size) {
    std::vector<Watched> watched;
    door.watch(watched);
    for (const Peer& peer : peers) watched.push_back({peer.connection.fd(), false});
    wait_for_any(watched, kTick);

    std::string refusal;
    while (auto peer = door.next(refusal)) {
      if (const auto first = found(peer->rank); refusal.empty() && first != peers.end()) {
        refusal = "two processes have one rank: " + first->text + " and " + peer->text;
        refuse(*peer, refusal);
      }
      if (!refusal.empty()) {
        give_up(refusal);
        throw InputError("", "launch", refusal, "start every rank of the run once, all with one world size");
      }
      peers.push_back(std::move(*peer));
    }
    for (Peer& peer : peers) {
      if (peer.connection.fill()) continue;
      const std::string gone = peer.text + " ended before all ranks had come";
      give_up(gone);
      throw std::runtime_error(gone);
    }
    if (Clock::now() < until) continue;
    std::string missing;
    for (int rank = 1; rank < place.world_size; ++rank)
      if (found(rank) == peers.end()) missing += (missing.empty() ? "" : ", ") + name_of(rank);
    const std::string text = missing + " did not come to rank 0 (" + host_name() + ", port " +
                             std::to_string(door.port()) + ") within " + seconds_text(time);
    give_up(text);
    throw std::runtime_error(text);
  }
  std::sort(peers.begin(), peers.end(), [](const Peer& a, const Peer& b) { return a.rank < b.rank; });
  for (Peer& peer : peers) {
    peer.heard = Clock::now();
    peer.connection.push(frame(Word::welcome));
  }
  return peers;
}

Peer join_as_guest(const ProcessPlace& place, std::chrono::duration<double> time) {
  auto until = Clock::now() + time;
  const std::string there = "rank 0 at " + place.address + ":" + std::to_string(place.port);
  std::string why;
  std::optional<Connection> connection;
  for (;;) {
    connection = Connection::to(place.address, place.port, kConnect, why);
    if (connection) break;
    if (Clock::now() >= until)
      throw std::runtime_error(there + " is not there after " + seconds_text(time) + ": " + why);
    std::this_thread::sleep_for(kTick);
  }
  connection->push(frame(Word::hello)
                       .add(kProtocol)
                       .add(place.rank)
                       .add(place.world_size)
                       .add(place.run)
                       .add(host_name())
                       .add(int64_t{getpid()}));
  Peer host{0, there, std::move(*connection)};
  until = Clock::now() + time + kMargin;
  for (;;) {
    const bool broken = !host.connection.flush();
    std::vector<Watched> watched{{host.connection.fd(), host.connection.has_output()}};
    wait_for_any(watched, kTick);
    const bool open = host.connection.fill() && !broken;
    try {
      if (auto answer = host.connection.next()) {
        if (answer->kind() == static_cast<uint32_t>(Word::refusal))
          throw InputError("", "launch", answer->text(), "");
        if (answer->kind() != static_cast<uint32_t>(Word::welcome)) throw BadFrame("no welcome");
        host.heard = Clock::now();
        return host;
      }
    } catch (const BadFrame&) {
      throw InputError("", "MASTER_PORT",
                       "at " + place.address + ":" + std::to_string(place.port) +
                           " listens something else than rank 0 of this run",
                       "set STP_MASTER_PORT to a port that is free on the node of rank 0");
    }
    if (!open) throw std::runtime_error(there + " ended before all ranks had come");
    if (Clock::now() >= until)
      throw std::runtime_error("not all ranks have come to " + there + " within " +
                               seconds_text(time + kMargin));
  }
}

}  // namespace stp
