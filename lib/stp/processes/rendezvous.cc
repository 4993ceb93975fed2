#include "stp/processes/rendezvous.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "stp/processes/joining.h"

namespace stp {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPollInterval{20};
constexpr milliseconds kPulse{200};
/// How long a process that ends waits for its last words to be taken.
constexpr milliseconds kFarewell{2000};
/// Of a gathered text in one message.
constexpr size_t kPiece = size_t{512} << 10;

Frame invitation_frame(const Invitation& invitation) {
  Frame words = frame(Word::meet);
  words.add(invitation.name).add(invitation.terms).add(invitation.text);
  for (const int member : invitation.members) words.add(member);
  return words;
}

Invitation read_invitation(Frame& words) {
  Invitation invitation{words.text(), {}, words.text(), words.text()};
  while (!words.done()) invitation.members.push_back(static_cast<int>(words.number()));
  return invitation;
}

// What a process gives to a gather.
struct Gift {
  std::string name, text;
};

}  // namespace

/// The thread that listens and speaks. Rank 0 has all others for peers and keeps the meetings; the others
/// have rank 0.
class Rendezvous::Line {
 public:
  Line(const ProcessPlace& place, RunGuard& guard, const RendezvousOptions& options,
       std::optional<Listener> listener)
      : place_(place),
        guard_(guard),
        options_(options),
        meetings_(place.world_size),
        pieces_(place.world_size),
        given_(place.world_size),
        departed_(place.world_size, false) {
    const std::chrono::duration<double> time(options.join_s);
    if (place.world_size == 1) return;
    if (place.rank == 0) {
      if (!listener) listener.emplace(place.address, place.port);
      door_ = std::make_unique<Door>(place, std::move(*listener));
      peers_ = join_as_host(place, *door_, time);
    } else {
      peers_.push_back(join_as_guest(place, time));
    }
    thread_ = std::thread([this] { run(); });
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  ~Line() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      if (!leaving_) guard_.fail(me() + " ended early");  // if nothing has failed yet
      closing_ = true;
    }
    waker_.wake();
    thread_.join();
  }

  [[nodiscard]] const ProcessPlace& place() const { return place_; }
  [[nodiscard]] RunGuard& guard() const { return guard_; }

  std::vector<std::string> meet(const Invitation& invitation) {
    if (place_.world_size == 1) return {invitation.text};
    std::unique_lock lock(mutex_);
    if (asked_ || leaving_)
      throw std::logic_error("a process comes to one meeting at a time, before it ends");
    asked_ = invitation;
    answer_.reset();
    passed_on_ = false;
    waker_.wake();
    guard_.wait(
        lock, changed_, RunGuard::WaitFor::peer, [this] { return answer_.has_value(); },
        [&] { return me() + ", host, waits for the other members of " + invitation.group(); });
    asked_.reset();
    return std::move(*answer_);
  }

  std::vector<std::string> gather(const std::string& name, std::string text) {
    if (place_.world_size == 1) return {std::move(text)};
    std::unique_lock lock(mutex_);
    if (leaving_) throw std::logic_error("a process gives nothing after its end");
    guard_.check();
    if (place_.rank != 0) {
      gifts_.push_back({name, std::move(text)});
      waker_.wake();
      return {};
    }
    guard_.wait(
        lock, changed_, RunGuard::WaitFor::peer,
        [this] { return without_gift(Left::no).empty() || !without_gift(Left::yes).empty(); },
        [&] { return me() + ", host, waits for " + name + " of " + without_gift(Left::no); });
    if (const std::string ranks = without_gift(Left::yes); !ranks.empty())
      refuse_gather(ranks + " ended without " + name + ", which rank 0 waits for");
    std::vector<std::string> texts{std::move(text)};
    for (int rank = 1; rank < place_.world_size; ++rank) {
      Gift& gift = given_[rank].front();
      if (gift.name != name)
        refuse_gather("rank " + std::to_string(rank) + " gave " + gift.name + " where rank 0 waits for " +
                      name);
      texts.push_back(std::move(gift.text));
      given_[rank].pop_front();
    }
    return texts;
  }

  void end() {
    if (!thread_.joinable()) return;
    std::unique_lock lock(mutex_);
    if (std::exchange(leaving_, true)) return;
    waker_.wake();
    if (place_.rank == 0)
      guard_.wait(
          lock, changed_, RunGuard::WaitFor::own_work, [this] { return alone_; },
          [this] { return me() + ", host, waits for the end of the others"; });
    else
      guard_.wait(
          lock, changed_, RunGuard::WaitFor::own_work, [this] { return said_all_ || alone_; },
          [this] { return me() + ", host, waits for rank 0 to take what it gave"; });
  }

 private:
  // The ranks that have given nothing to the gather that is next, of those that have left or of the others:
  // "rank 1, rank 3". Under the mutex.
  enum class Left { no, yes };
  [[nodiscard]] std::string without_gift(Left left) const {
    std::string text;
    for (int rank = 1; rank < place_.world_size; ++rank)
      if (given_[rank].empty() && departed_[rank] == (left == Left::yes))
        text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank);
    return text;
  }

  [[noreturn]] void refuse_gather(const std::string& why) {
    guard_.fail(why);
    throw Stopped();
  }

  [[nodiscard]] std::string me() const { return "rank " + std::to_string(place_.rank); }

  void run() {
    auto last = Clock::now();
    std::optional<Clock::time_point> farewell;
    for (;;) {
      try {
        listen();
        // Who slept himself has no right to complain of silence.
        if (Clock::now() - last > silence() / 2)
          for (Peer& peer : peers_) peer.heard = Clock::now();
        last = Clock::now();
        take_orders();
        for (Peer& peer : peers_) hear(peer);
        turn_away();
        pulse();
        tell_failure();
        for (Peer& peer : peers_)
          if (!peer.gone && !peer.connection.flush()) lost(peer);
        note_said_all();
      } catch (const std::exception& error) {
        guard_.fail(std::string("rendezvous: ") + error.what());
      }
      if (!closes()) continue;
      if (!farewell) farewell = Clock::now() + kFarewell;
      const bool all_gone =
          std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.gone; });
      if (all_gone || Clock::now() > *farewell) return;
    }
  }

  // Whether all that a process gave before its end is under way.
  void note_said_all() {
    {
      const std::lock_guard lock(mutex_);
      if (said_all_ || !left_ || peers_[0].connection.has_output()) return;
      said_all_ = true;
    }
    changed_.notify_all();
  }

  // The last words are said once they are on the wire: then this end says no more, and waits for the other's.
  bool closes() {
    {
      const std::lock_guard lock(mutex_);
      if (!closing_ || !(left_ || told_)) return false;
    }
    for (Peer& peer : peers_) {
      if (peer.gone || peer.told_all || peer.connection.has_output()) continue;
      peer.connection.finish();
      peer.told_all = true;  // a word after the last would break the connection before the others were read
    }
    return true;
  }

  [[nodiscard]] std::chrono::duration<double> silence() const {
    return std::chrono::duration<double>(options_.silence_s);
  }

  void listen() {
    std::vector<Watched> watched{{waker_.fd(), false}};
    if (door_) door_->watch(watched);
    for (const Peer& peer : peers_)
      if (!peer.gone) watched.push_back({peer.connection.fd(), peer.connection.has_output()});
    wait_for_any(watched, kPollInterval);
    waker_.reset();
  }

  // What the host thread wants.
  void take_orders() {
    std::optional<Invitation> asked;
    std::deque<Gift> gifts;
    bool leaves = false;
    {
      const std::lock_guard lock(mutex_);
      gifts.swap(gifts_);
      if (asked_ && !std::exchange(passed_on_, true)) asked = asked_;
      leaves = leaving_ && !std::exchange(left_, leaving_);
    }
    for (const Gift& gift : gifts) give(gift);
    if (asked) {
      if (place_.rank == 0)
        come(0, std::move(*asked));
      else
        peers_[0].connection.push(invitation_frame(*asked));
    }
    if (!leaves) return;
    if (place_.rank == 0)
      meetings_.leave(0);
    else if (!guard_.failed())
      peers_[0].connection.push(frame(Word::goodbye));
    look_round();
  }

  // To rank 0, in pieces.
  void give(const Gift& gift) {
    size_t at = 0;
    do {
      const size_t size = std::min(kPiece, gift.text.size() - at);
      const bool more = at + size < gift.text.size();
      peers_[0].connection.push(
          frame(Word::give).add(gift.name).add(more ? 1 : 0).add(gift.text.substr(at, size)));
      at += size;
    } while (at < gift.text.size());
  }

  void take(int rank, Frame& words) {
    const std::string name = words.text();
    const bool more = words.number() != 0;
    pieces_[rank] += words.text();
    words.end();
    guard_.progress();
    if (more) return;
    {
      const std::lock_guard lock(mutex_);
      given_[rank].push_back({name, std::exchange(pieces_[rank], "")});
    }
    changed_.notify_all();
  }

  void hear(Peer& peer) {
    if (peer.gone) return;
    const bool open = peer.connection.fill();
    try {
      while (auto words = peer.connection.next()) {
        peer.heard = Clock::now();
        understand(peer, *words);
      }
    } catch (const BadFrame& bad) {
      guard_.fail(peer.text + " sent " + bad.what());
      return lost(peer);
    }
    if (!open) return lost(peer);
    if (!peer.left && Clock::now() - peer.heard > silence())
      guard_.fail(peer.text + " has given no sign of life for " +
                  std::to_string(static_cast<int>(options_.silence_s)) + " s");
  }

  void lost(Peer& peer) {
    peer.gone = true;
    peer.connection.finish();
    bool expected = peer.left;
    {
      const std::lock_guard lock(mutex_);
      expected = expected || (place_.rank != 0 && leaving_);
    }
    if (!expected) guard_.fail(peer.text + " is gone: its connection ended");
    look_round();
  }

  void understand(Peer& peer, Frame& words) {
    switch (static_cast<Word>(words.kind())) {
      case Word::meet:
        if (place_.rank != 0) break;
        return come(peer.rank, read_invitation(words));
      case Word::met: {
        std::vector<std::string> texts;
        while (!words.done()) texts.push_back(words.text());
        return deliver(std::move(texts));
      }
      case Word::failure:
        return guard_.fail(words.text());
      case Word::pulse:
        if (words.number() != 0) {
          guard_.progress();
          ++handed_on_;
          others_moved_ = true;
        }
        return words.end();
      case Word::goodbye:
        peer.left = true;
        if (place_.rank == 0) {
          const std::lock_guard lock(mutex_);
          departed_[peer.rank] = true;
        }
        if (place_.rank == 0) meetings_.leave(peer.rank);
        return look_round();
      case Word::give:
        if (place_.rank != 0) break;
        return take(peer.rank, words);
      case Word::hello:
      case Word::welcome:
      case Word::refusal:
        break;
    }
    throw BadFrame("a word out of place");
  }

  void come(int rank, Invitation invitation) {
    const std::vector<int> members = invitation.members;
    const auto texts = meetings_.come(rank, std::move(invitation));
    if (!texts) return;
    guard_.progress();
    for (const int member : members) {
      if (member == 0) {
        deliver(*texts);
        continue;
      }
      Frame words = frame(Word::met);
      for (const std::string& text : *texts) words.add(text);
      peers_[member - 1].connection.push(words);
    }
  }

  void deliver(std::vector<std::string> texts) {
    {
      const std::lock_guard lock(mutex_);
      answer_ = std::move(texts);
    }
    changed_.notify_all();
  }

  void turn_away() {
    if (!door_) return;
    std::string refusal;
    while (auto late = door_->next(refusal)) {
      if (refusal.empty()) refuse(*late, "there is a rank " + std::to_string(late->rank) + " already");
      refusal.clear();
    }
  }

  // A sign of life, and whether this process got on; rank 0 passes on what it heard from any.
  void pulse() {
    if (Clock::now() - pulsed_ < kPulse) return;
    pulsed_ = Clock::now();
    const uint64_t own = guard_.moved() - handed_on_;
    const bool moved = own != own_ || guard_.working() || (place_.rank == 0 && others_moved_);
    own_ = own;
    others_moved_ = false;
    for (Peer& peer : peers_)
      if (!peer.gone && !peer.left && !peer.told_all)
        peer.connection.push(frame(Word::pulse).add(moved ? 1 : 0));
  }

  void tell_failure() {
    if (!guard_.failed() || std::exchange(told_, true)) return;
    std::string text = guard_.failure();
    if (const std::string waiting = meetings_.waiting(); !waiting.empty()) text += "\n  meanwhile " + waiting;
    for (Peer& peer : peers_)
      if (!peer.gone && !peer.told_all) peer.connection.push(frame(Word::failure).add(text));
    changed_.notify_all();
  }

  // Whether rank 0 is the last.
  void look_round() {
    {
      const std::lock_guard lock(mutex_);
      alone_ =
          std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.left || peer.gone; });
    }
    changed_.notify_all();
  }

  const ProcessPlace place_;
  RunGuard& guard_;
  const RendezvousOptions options_;
  Waker waker_;

  // Of the thread.
  std::unique_ptr<Door> door_;
  std::vector<Peer> peers_;  // in the order of their ranks
  Meetings meetings_;
  std::vector<std::string> pieces_;  // by rank: of a gathered text of which more comes
  Clock::time_point pulsed_{};
  uint64_t own_ = 0, handed_on_ = 0;  // progress of this process; that of others, told to the guard
  bool others_moved_ = false, told_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Invitation> asked_;
  std::optional<std::vector<std::string>> answer_;
  std::deque<Gift> gifts_;                // of this process, to be sent
  std::vector<std::deque<Gift>> given_;   // to rank 0, by rank
  std::vector<bool> departed_;            // by rank, at rank 0: said goodbye
  bool passed_on_ = false;                // what was asked, to the meetings
  bool leaving_ = false, left_ = false;   // end() was called; the others were told
  bool said_all_ = false;                 // all is under way that was said before the end
  bool alone_ = false, closing_ = false;  // all others have left; the destructor waits
  std::thread thread_;                    // last: it uses all others
};

Rendezvous::Rendezvous(const ProcessPlace& place, RunGuard& guard, const RendezvousOptions& options,
                       std::optional<Listener> listener)
    : line_(std::make_unique<Line>(place, guard, options, std::move(listener))) {}

Rendezvous::~Rendezvous() = default;

std::vector<std::string> Rendezvous::meet(const Invitation& invitation) { return line_->meet(invitation); }

std::vector<std::string> Rendezvous::gather(const std::string& name, std::string text) {
  return line_->gather(name, std::move(text));
}

void Rendezvous::end() { line_->end(); }

const ProcessPlace& Rendezvous::place() const { return line_->place(); }

RunGuard& Rendezvous::guard() const { return line_->guard(); }

}  // namespace stp
