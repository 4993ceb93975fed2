#include "stp/processes/tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "stp/base/error.h"

namespace stp {
namespace {

constexpr uint32_t kMagic = 0x31505453;  // "STP1"
constexpr size_t kHeader = 12;
constexpr uint32_t kLongest = 1U << 20;
constexpr int kBacklog = 1024;

std::string reason(int error) { return std::generic_category().message(error); }

[[noreturn]] void fail(const char* call) { throw std::system_error(errno, std::generic_category(), call); }

void append(std::string& bytes, uint64_t value, size_t count) {
  for (size_t i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
}

uint64_t read(const char* bytes, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return value;
}

void set_option(int fd, int level, int option, int value) {
  // Only speed, or nothing, is lost where it fails.
  static_cast<void>(setsockopt(fd, level, option, &value, sizeof value));
}

std::string name_of(const sockaddr_storage& address, socklen_t length) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> service{};
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host.data(), host.size(),
                  service.data(), service.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "an unknown address";
  return std::string(host.data()) + ":" + service.data();
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses addresses_of(const std::string& host, uint16_t port, std::string& why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) why = gai_strerror(error);
  return Addresses(list);
}

bool is_this_machine(const std::string& address) {
  return address == "localhost" || address == "::1" || address.rfind("127.", 0) == 0;
}

Descriptor listening(int family, const sockaddr* address, socklen_t length) {
  Descriptor socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return socket;
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (family == AF_INET6) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(socket.get(), address, length) != 0 || listen(socket.get(), kBacklog) != 0) return Descriptor();
  return socket;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Frame& Frame::add(int64_t number) {
  append(body_, static_cast<uint64_t>(number), 8);
  return *this;
}

Frame& Frame::add(const std::string& text) {
  append(body_, text.size(), 4);
  body_ += text;
  return *this;
}

Frame& Frame::add(std::span<const double> values) {
  const auto bytes = std::as_bytes(values);
  return add(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

uint64_t Frame::take(size_t bytes) {
  if (body_.size() - at_ < bytes) throw BadFrame("a message that ends too early");
  const uint64_t value = read(body_.data() + at_, bytes);
  at_ += bytes;
  return value;
}

int64_t Frame::number() { return static_cast<int64_t>(take(8)); }

std::string Frame::text() {
  const uint64_t length = take(4);
  if (body_.size() - at_ < length) throw BadFrame("a message that ends too early");
  std::string text = body_.substr(at_, length);
  at_ += length;
  return text;
}

std::vector<double> Frame::values() {
  const std::string bytes = text();
  if (bytes.size() % sizeof(double) != 0) throw BadFrame("a value that ends too early");
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

void Frame::end() const {
  if (!done()) throw BadFrame("a message that is too long");
}

Connection::Connection(Descriptor socket) : socket_(std::move(socket)) {
  const int flags = fcntl(fd(), F_GETFL);
  if (flags < 0 || fcntl(fd(), F_SETFL, flags | O_NONBLOCK) != 0) fail("fcntl");
  set_option(fd(), IPPROTO_TCP, TCP_NODELAY, 1);
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  peer_ = getpeername(fd(), reinterpret_cast<sockaddr*>(&address), &length) == 0 ? name_of(address, length)
                                                                                 : "an unknown address";
}

std::optional<Connection> Connection::to(const std::string& host, uint16_t port,
                                         std::chrono::milliseconds time, std::string& why) {
  const Addresses addresses = addresses_of(host, port, why);
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    Descriptor socket(
        ::socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at->ai_protocol));
    if (!socket) {
      why = reason(errno);
      continue;
    }
    int error = connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      pollfd waited{socket.get(), POLLOUT, 0};
      error = poll(&waited, 1, static_cast<int>(time.count())) == 1 ? 0 : ETIMEDOUT;
      socklen_t length = sizeof error;
      if (error == 0 && getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    }
    if (error == 0) return Connection(std::move(socket));
    why = reason(error);
  }
  return std::nullopt;
}

void Connection::push(const Frame& frame) {
  if (frame.body().size() > kLongest) throw std::logic_error("a message of more than 1 MiB");
  if (!has_output()) {
    output_.clear();
    sent_ = 0;
  }
  append(output_, kMagic, 4);
  append(output_, frame.kind(), 4);
  append(output_, frame.body().size(), 4);
  output_ += frame.body();
}

bool Connection::flush() {
  while (has_output()) {
    const ssize_t sent = send(fd(), output_.data() + sent_, output_.size() - sent_, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    sent_ += static_cast<size_t>(sent);
  }
  return true;
}

bool Connection::fill() {
  std::array<char, 1 << 14> piece;
  for (;;) {
    const ssize_t got = recv(fd(), piece.data(), piece.size(), 0);
    if (got > 0) {
      input_.append(piece.data(), static_cast<size_t>(got));
      // The rest waits in the system until this is read.
      if (input_.size() > kHeader + kLongest) return true;
    } else if (got == 0 || errno != EINTR) {
      return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    }
  }
}

std::optional<Frame> Connection::next() {
  const size_t known = std::min<size_t>(input_.size(), 4);
  if (read(input_.data(), known) != (kMagic & ((uint64_t{1} << (8 * known)) - 1)))
    throw BadFrame("something else than messages of this program");
  if (input_.size() < kHeader) return std::nullopt;
  const uint64_t length = read(input_.data() + 8, 4);
  if (length > kLongest) throw BadFrame("a message of " + std::to_string(length) + " bytes");
  if (input_.size() < kHeader + length) return std::nullopt;
  Frame frame(static_cast<uint32_t>(read(input_.data() + 4, 4)), input_.substr(kHeader, length));
  input_.erase(0, kHeader + length);
  return frame;
}

void Connection::finish() const { shutdown(fd(), SHUT_WR); }

Listener::Listener(const std::string& address, uint16_t port) {
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(port);
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_port = htons(port);
  if (is_this_machine(address)) any4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // Where there is no IPv6, the other is tried, and its error counts.
  if (!is_this_machine(address))
    socket_ = listening(AF_INET6, reinterpret_cast<sockaddr*>(&any6), sizeof any6);
  if (!socket_) socket_ = listening(AF_INET, reinterpret_cast<sockaddr*>(&any4), sizeof any4);
  if (!socket_)
    throw InputError("", "MASTER_PORT",
                     "rank 0 cannot listen on port " + std::to_string(port) + ": " + reason(errno),
                     "set STP_MASTER_PORT to a port that is free on its node");
}

uint16_t Listener::port() const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0) fail("getsockname");
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::optional<Connection> Listener::accept() const {
  Descriptor socket(accept4(fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) return std::nullopt;  // it went away again, or the system has no more: it will come again
  return Connection(std::move(socket));
}

void wait_for_any(std::vector<Watched>& watched, std::chrono::milliseconds time) {
  std::vector<pollfd> polled;
  for (const Watched& each : watched)
    polled.push_back({each.fd, static_cast<short>(each.output ? POLLIN | POLLOUT : POLLIN), 0});
  if (poll(polled.data(), polled.size(), static_cast<int>(time.count())) < 0 && errno != EINTR) fail("poll");
  for (size_t i = 0; i < watched.size(); ++i) {
    watched[i].ready_in = (polled[i].revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL)) != 0;
    watched[i].ready_out = (polled[i].revents & POLLOUT) != 0;
  }
}

Waker::Waker() : event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!event_) fail("eventfd");
}

void Waker::wake() const {
  const uint64_t one = 1;
  static_cast<void>(::write(event_.get(), &one, sizeof one) == sizeof one);  // full: it is awake already
}

void Waker::reset() const {
  uint64_t count = 0;
  static_cast<void>(::read(event_.get(), &count, sizeof count) == sizeof count);
}

}  // namespace stp
