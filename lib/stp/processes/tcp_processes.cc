#include "stp/processes/tcp_processes.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "stp/base/error.h"
#include "stp/base/file_descriptor.h"

namespace stp {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr auto kTick = 20ms;  // between progress reports
constexpr uint64_t kTexts = ~uint64_t{0};
constexpr size_t kTextPiece = size_t{1} << 24;  // a text's shorter frame is its last

// ---- frames ----

enum class FrameKind : uint32_t {
  hello = 0x73747031,  // `peer`: who connects; `tag`: of how many
  welcome,             // all are there
  message,             // `peer`: on the way to the relay the receiver, then the sender
  moved,               // some process works, or has done something
  failed,              // `peer`: who, or −1; `tag`: the exit code; the bytes say why
  ended,               // one process, then all
};

struct FrameHead {
  FrameKind kind;
  int32_t peer = 0;
  uint64_t tag = 0, bytes = 0;
};

std::string frame(FrameHead head, const void* bytes = nullptr) {
  std::string text(reinterpret_cast<const char*>(&head), sizeof head);
  return text.append(static_cast<const char*>(bytes), head.bytes);
}

std::string frame_of_failure(int who, int code, const std::string& why) {
  return frame({FrameKind::failed, who, static_cast<uint64_t>(code), why.size()}, why.data());
}

std::string reason() { return std::generic_category().message(errno); }

class Socket : public FileDescriptor {
 public:
  using FileDescriptor::FileDescriptor;
  void close() { const FileDescriptor closed(std::move(*this)); }
  void set_patience(int option, Seconds most) const {  // of calls that wait
    const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(most).count();
    const timeval value{whole / 1'000'000, whole % 1'000'000};
    setsockopt(get(), SOL_SOCKET, option, &value, sizeof value);
  }
  void set(int level, int option, int value = 1) const {
    setsockopt(get(), level, option, &value, sizeof value);
  }
  bool read(void* to, size_t bytes) const {
    size_t at = 0;
    for (ssize_t got = 1; at < bytes && got > 0; at += got)  // a call reads at most 2 GiB
      got = recv(get(), static_cast<char*>(to) + at, bytes - at, MSG_WAITALL);
    return at == bytes;
  }
};

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

// The addresses of a host, or with AI_PASSIVE of this machine. Sets `unknown` to why there is none, or to "".
Addresses find_addresses(const char* host, int port, int flags, int family, std::string& unknown) {
  const addrinfo hints{.ai_flags = flags, .ai_family = family, .ai_socktype = SOCK_STREAM};
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host, std::to_string(port).c_str(), &hints, &list);
  unknown = error == 0 ? "" : gai_strerror(error);
  return {error == 0 ? list : nullptr, freeaddrinfo};
}

// Calls use(socket, address) for each address, until it returns true.
template <typename Use>
bool at_any(const Addresses& addresses, Use use) {
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next)
    if (Socket made(socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, 0)); use(made, *each))
      return true;
  return false;
}

// ---- the relay ----

/// Process 0's thread that passes frames on, one connection to each process. It waits for no process: what
/// one does not take stays in memory. A process that fails, or whose connection ends before it says so, ends
/// all.
class Relay {
 public:
  Relay(Socket listener, std::string where, int count, Seconds patience)
      : listener_(std::move(listener)),
        where_(std::move(where)),
        peers_(count),
        patience_(patience),
        thread_([this] { serve(); }) {}

 private:
  struct Peer {
    Socket socket;
    std::string in, out;
    size_t sent = 0;  // of `out`
    bool ended = false;
  };

  void serve() {
    for (const auto start = Clock::now(); present_ < peers_.size() && !over_;) {
      pollfd asked{listener_.get(), POLLIN, 0};
      if (poll(&asked, 1, kTick / 1ms) > 0) greet();
      if (Clock::now() - start > patience_) fail(-1, 1, nobody_came());
    }
    listener_.close();
    if (!over_) tell_all(frame({FrameKind::welcome}));
    for (auto last = Clock::now(); !over_;) {
      pass_on();
      if (Clock::now() - last < kTick) continue;
      last = Clock::now();
      if (std::exchange(moved_, false)) tell_all(frame({FrameKind::moved}));
    }
    // The last words; to process 0 when the others have them, because this thread ends with it.
    const auto told = [](const Peer& peer) { return !peer.socket || peer.out.empty(); };
    for (const auto until = Clock::now() + 2s; Clock::now() < until; std::this_thread::sleep_for(1ms)) {
      std::for_each(peers_.begin() + 1, peers_.end(), write);
      if (std::all_of(peers_.begin() + 1, peers_.end(), told)) break;
    }
    write(peers_.front());
    for (Peer& peer : peers_) peer.socket.close();
  }

  // What does not say hello is another program's.
  void greet() {
    Socket socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    socket.set_patience(SO_RCVTIMEO, 1s);
    FrameHead head{};
    if (!socket.read(&head, sizeof head) || head.kind != FrameKind::hello) return;
    const auto who = static_cast<size_t>(head.peer);
    if (head.tag != peers_.size() || who >= peers_.size())
      return fail(-1, 2,
                  "a process was started as number " + std::to_string(who) + " of " +
                      std::to_string(head.tag) + ", process 0 as one of " + std::to_string(peers_.size()));
    if (peers_[who].socket) return fail(-1, 2, "two processes were started with RANK " + std::to_string(who));
    socket.set(IPPROTO_TCP, TCP_NODELAY);
    fcntl(socket.get(), F_SETFL, O_NONBLOCK);
    peers_[who].socket = std::move(socket);
    ++present_;
  }

  [[nodiscard]] std::string nobody_came() const {
    std::string missing;
    for (size_t i = 0; i < peers_.size(); ++i)
      if (!peers_[i].socket) missing += (missing.empty() ? "" : ", ") + std::to_string(i);
    return "process " + missing + " did not come to " + where_ + " for " + shown("%g", patience_.count()) +
           " s";
  }

  void pass_on() {
    std::vector<pollfd> asked;
    for (const Peer& peer : peers_)
      asked.push_back(
          {peer.socket.get(), static_cast<int16_t>(peer.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
    poll(asked.data(), asked.size(), kTick / 1ms);
    for (size_t i = 0; i < peers_.size() && !over_; ++i) {
      if ((asked[i].revents & POLLOUT) != 0) write(peers_[i]);
      if ((asked[i].revents & ~POLLOUT) != 0) read(static_cast<int>(i));
    }
  }

  void read(int who) {
    Peer& peer = peers_[who];
    const ssize_t got = recv(peer.socket.get(), piece_.data(), piece_.size(), 0);
    const bool ended = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    peer.in.append(piece_.data(), static_cast<size_t>(std::max<ssize_t>(got, 0)));
    // A piece of a long text is progress: the whole may take longer than the others' deadlines.
    if (got > 0 && peer.in.size() > piece_.size()) moved_ = true;
    size_t at = 0;
    for (FrameHead head{}; !over_ && peer.in.size() - at >= sizeof head; at += sizeof head + head.bytes) {
      std::memcpy(&head, peer.in.data() + at, sizeof head);
      if (peer.in.size() - at < sizeof head + head.bytes) break;
      take(who, head, peer.in.data() + at + sizeof head);
    }
    peer.in.erase(0, at);
    if (ended) peer.socket.close();
    if (ended && !over_ && !peer.ended) fail(who, 1, "ended, and left the others waiting");
  }

  static void write(Peer& peer) {
    if (!peer.socket || peer.out.empty()) return;
    const ssize_t put =
        send(peer.socket.get(), peer.out.data() + peer.sent, peer.out.size() - peer.sent, MSG_NOSIGNAL);
    if (put > 0) peer.sent += static_cast<size_t>(put);
    if (peer.sent < peer.out.size()) return;
    peer.out.clear();
    peer.sent = 0;
  }

  void take(int from, const FrameHead& head, const char* bytes) {
    if (head.kind == FrameKind::message)
      peers_.at(head.peer).out += frame({FrameKind::message, from, head.tag, head.bytes}, bytes);
    if (head.kind == FrameKind::moved) moved_ = true;
    if (head.kind == FrameKind::failed)
      fail(from, static_cast<int>(head.tag), std::string(bytes, head.bytes));
    if (head.kind != FrameKind::ended) return;
    peers_[from].ended = true;
    over_ = std::ranges::all_of(peers_, &Peer::ended);
    if (over_) tell_all(frame(head));
  }

  void tell_all(const std::string& text) {
    for (Peer& peer : peers_) peer.out += text;
  }
  void fail(int who, int code, const std::string& why) {
    over_ = true;
    tell_all(frame_of_failure(who, code, why));
  }

  Socket listener_;
  const std::string where_;
  std::vector<Peer> peers_;  // by process
  std::string piece_ = std::string(size_t{1} << 18, '\0');
  const Seconds patience_;
  size_t present_ = 0;
  bool moved_ = false, over_ = false;
  std::jthread thread_;
};

// ---- a process ----

class TcpProcesses final : public Processes {
 public:
  TcpProcesses(Rendezvous all, double deadline_s);
  TcpProcesses(const TcpProcesses&) = delete;
  TcpProcesses& operator=(const TcpProcesses&) = delete;
  ~TcpProcesses() override;

  [[noreturn]] void abort(const std::string& why, int code) override;

 private:
  class TcpPending;

  void open();
  void connect_since(Clock::time_point start);
  void send(int to, const std::string& text) override {
    for (size_t at = 0; at <= text.size(); at += kTextPiece)  // between which others' frames pass
      put(frame({FrameKind::message, to, kTexts, std::min(kTextPiece, text.size() - at)}, text.data() + at));
  }
  std::string receive(int from) override;
  std::unique_ptr<Pending> start(const std::vector<uint64_t>& number_with, uint64_t call,
                                 std::span<const Message> sends, std::span<const Message> receives) override;
  void put(const std::string& frame) {
    const std::lock_guard lock(sending_);
    put_locked(frame);
  }
  void put_locked(const std::string& frame);
  std::optional<std::string> taken(int from, uint64_t tag);
  void listen();
  void take(const FrameHead& head, std::string bytes);
  [[noreturn]] void end(const std::string& why, int code = 1) { Processes::abort(why, code); }

  const Rendezvous all_;
  const Seconds patience_;
  const std::string where_ = all_.host + ":" + std::to_string(all_.port),
                    waited_ = where_ + " for " + shown("%g", patience_.count()) + " s";
  std::optional<Relay> relay_;
  Socket socket_;
  std::timed_mutex sending_;
  std::mutex mutex_;
  std::multimap<std::pair<int, uint64_t>, std::string> inbox_;  // by sender and tag
  std::atomic<bool> welcome_{false}, all_ended_{false}, aborting_{false}, closed_{false}, given_up_{false};
  std::thread listener_;
};

TcpProcesses::TcpProcesses(Rendezvous all, double deadline_s)
    : Processes({all.index, all.count, all.index_on_node}),
      all_(std::move(all)),
      patience_(kPatience * deadline_s) {
  if (is_root()) open();
  const auto start = Clock::now();
  connect_since(start);
  put(frame({FrameKind::hello, index(), static_cast<uint64_t>(count())}));
  listener_ = std::thread([this] { listen(); });
  // Process 0 says who is missing, unless it stands still itself.
  for (; !welcome_; std::this_thread::sleep_for(1ms))
    if (Clock::now() - start > 2 * patience_) end("process 0 did not answer at " + waited_);
}

void TcpProcesses::open() {
  std::string problem, unknown;
  const auto opens = [&](Socket& made, const addrinfo& address) {
    made.set(SOL_SOCKET, SO_REUSEADDR);
    made.set(IPPROTO_IPV6, IPV6_V6ONLY, 0);
    const bool is_open =
        bind(made.get(), address.ai_addr, address.ai_addrlen) == 0 && ::listen(made.get(), SOMAXCONN) == 0;
    problem = reason();
    if (is_open) relay_.emplace(std::move(made), where_, count(), patience_);
    return is_open;
  };
  const auto opens_at = [&](const char* host, int flags, int family) {
    return at_any(find_addresses(host, all_.port, flags, family, unknown), opens);
  };
  // Process 0's machine may know its own name as a loopback address, where no other machine finds it. So with
  // a name, process 0 listens at all addresses: by IPv6, which takes IPv4, too, where the machine has it.
  const int literal = all_.host == "localhost" ? 0 : AI_NUMERICHOST;
  if (opens_at(all_.host.c_str(), literal, AF_UNSPEC)) return;
  if (!unknown.empty() && (opens_at(nullptr, AI_PASSIVE, AF_INET6) || opens_at(nullptr, AI_PASSIVE, AF_INET)))
    return;
  throw InputError("", "MASTER_PORT", where_ + " cannot be opened: " + problem,
                   "choose a free port, and start process 0 on MASTER_ADDR");
}

void TcpProcesses::connect_since(Clock::time_point start) {
  std::string problem, unknown;
  const auto connects = [&](Socket& made, const addrinfo& address) {
    made.set(IPPROTO_TCP, TCP_NODELAY);
    made.set_patience(SO_SNDTIMEO, patience_);  // of connect(), too
    const bool is_there = connect(made.get(), address.ai_addr, address.ai_addrlen) == 0;
    problem = reason();
    if (is_there) socket_ = std::move(made);
    return is_there;
  };
  while (!socket_) {  // a name may come to be known, as of a machine that is about to start
    const Addresses found = find_addresses(all_.host.c_str(), all_.port, 0, AF_UNSPEC, unknown);
    for (const auto ask_again = Clock::now() + 1s; !at_any(found, connects) && Clock::now() < ask_again;) {
      std::this_thread::sleep_for(kTick);
      if (Clock::now() - start <= patience_) continue;
      if (unknown.empty()) end("process 0 did not open " + waited_ + ": " + problem);
      throw InputError("", "MASTER_ADDR", "\"" + all_.host + "\" is not found: " + unknown,
                       "set it to the name or address of process 0's machine");
    }
  }
}

TcpProcesses::~TcpProcesses() {
  if (given_up_ || std::uncaught_exceptions() > 0) abort("ended while others may wait for it", 1);
  put(frame({FrameKind::ended}));
  for (Idle idle(progress()); !all_ended_; std::this_thread::sleep_for(1ms))
    if (idle.time() > patience_) abort(nothing_moved("waits for the others to end", patience_), 1);
  listener_.join();
}

// The relay ends the others, and closes this connection when they know.
void TcpProcesses::abort(const std::string& why, int code) {
  report_failure(why);
  aborting_ = true;
  const auto until = Clock::now() + 3s;
  // Another thread may have sent half a frame, and process 0 may take no more.
  if (const std::unique_lock lock(sending_, until); lock) {
    socket_.set_patience(SO_SNDTIMEO, 3s);
    put_locked(frame_of_failure(index(), code, why));
  }
  while (!closed_ && Clock::now() < until) std::this_thread::sleep_for(1ms);
  std::_Exit(code);
}

void TcpProcesses::put_locked(const std::string& frame) {
  for (size_t at = 0; at < frame.size();) {
    const ssize_t sent = ::send(socket_.get(), frame.data() + at, frame.size() - at, MSG_NOSIGNAL);
    if (sent > 0) at += static_cast<size_t>(sent);
    if (sent > 0 || errno == EINTR) continue;
    if (errno == EAGAIN && !aborting_)
      end("process 0 took no message for " + shown("%g", patience_.count()) + " s");
    return;  // the listener finds the end
  }
}

// On its own thread, until the connection ends.
void TcpProcesses::listen() {
  uint64_t reported = 0;
  for (auto last = Clock::now(); !all_ended_;) {
    pollfd asked{socket_.get(), POLLIN, 0};
    if (poll(&asked, 1, kTick / 1ms) > 0) {
      FrameHead head{};
      std::string bytes;
      bool whole = socket_.read(&head, sizeof head);
      if (whole && (head.kind < FrameKind::hello || head.kind > FrameKind::ended))
        end("ends, because what listens at MASTER_ADDR and MASTER_PORT is no process of this run; use a free "
            "port");
      if (whole) bytes.resize(head.bytes);
      whole = whole && socket_.read(bytes.data(), bytes.size());
      closed_ = !whole;
      if (!whole && aborting_) return;
      if (!whole) end("ends, because process 0 ended, and left the others waiting");
      take(head, std::move(bytes));
    }
    if (Clock::now() - last < kTick) continue;
    last = Clock::now();
    if (const uint64_t done = progress().done; done != reported || progress().working > 0) {
      reported = done;
      put(frame({FrameKind::moved}));
    }
  }
}

void TcpProcesses::take(const FrameHead& head, std::string bytes) {
  if (head.kind == FrameKind::welcome) welcome_ = true;
  if (head.kind == FrameKind::moved) ++progress().elsewhere;
  if (head.kind == FrameKind::ended) all_ended_ = true;
  if (head.kind == FrameKind::failed && !aborting_)
    end(head.peer < 0 ? bytes : "ends, because process " + std::to_string(head.peer) + ": " + bytes,
        static_cast<int>(head.tag));
  if (head.kind != FrameKind::message) return;
  const std::lock_guard lock(mutex_);
  inbox_.emplace(std::pair(head.peer, head.tag), std::move(bytes));
}

std::optional<std::string> TcpProcesses::taken(int from, uint64_t tag) {
  const std::lock_guard lock(mutex_);
  const std::pair key(from, tag);
  const auto found = inbox_.lower_bound(key);  // the oldest
  if (found == inbox_.end() || found->first != key) return std::nullopt;
  return std::move(inbox_.extract(found).mapped());
}

std::string TcpProcesses::receive(int from) {
  std::string text;
  for (Idle idle(progress());; std::this_thread::sleep_for(100us)) {
    const std::optional<std::string> piece = taken(from, kTexts);
    if (piece) text += *piece;
    if (piece && piece->size() < kTextPiece) return text;
    if (idle.time() > patience_)
      throw std::runtime_error(
          nothing_moved("waits for a text of process " + std::to_string(from), patience_));
  }
}

/// What is sent is done when the relay has it.
class TcpProcesses::TcpPending : public Pending {
 public:
  TcpPending(TcpProcesses& all, std::span<const Message> receives, std::vector<uint64_t> tags)
      : all_(all), receives_(receives.begin(), receives.end()), tags_(std::move(tags)) {}
  TcpPending(const TcpPending&) = delete;
  TcpPending& operator=(const TcpPending&) = delete;
  ~TcpPending() override {
    if (!receives_.empty()) all_.given_up_ = true;
  }

  bool done() override {
    for (; !receives_.empty(); receives_.pop_front()) {
      const Message& next = receives_.front();
      const std::optional<std::string> text = all_.taken(next.process, tags_[next.process]);
      if (!text) return false;
      if (text->size() != next.count)
        throw std::logic_error("process " + std::to_string(next.process) + " sent " +
                               std::to_string(text->size()) + " bytes, not " + std::to_string(next.count));
      std::copy_n(reinterpret_cast<const std::byte*>(text->data()), next.count, next.bytes);
    }
    return true;
  }
  [[nodiscard]] std::vector<int> missing() const override {
    std::set<int> missing;
    for (const Message& each : receives_) missing.insert(each.process);
    return {missing.begin(), missing.end()};
  }

 private:
  TcpProcesses& all_;
  std::deque<Message> receives_;
  const std::vector<uint64_t> tags_;  // by process
};

std::unique_ptr<Pending> TcpProcesses::start(const std::vector<uint64_t>& number_with, uint64_t call,
                                             std::span<const Message> sends,
                                             std::span<const Message> receives) {
  std::vector<uint64_t> tags;
  for (const uint64_t number : number_with) tags.push_back(number << 32 | call);
  for (const Message& each : sends)
    put(frame({FrameKind::message, each.process, tags[each.process], each.count}, each.bytes));
  return std::make_unique<TcpPending>(*this, receives, std::move(tags));
}

}  // namespace

std::unique_ptr<Processes> join_by_tcp(Rendezvous rendezvous, double deadline_s) {
  return std::make_unique<TcpProcesses>(std::move(rendezvous), deadline_s);
}

}  // namespace stp
