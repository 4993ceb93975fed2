// Framed messages over TCP that never block: what the processes of a run tell each other beside their data.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace stp {

/// What came over a connection is no message of this program.
class BadFrame : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A file descriptor that is closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();

  [[nodiscard]] int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

/// A message: its kind, and fields of numbers, text and lists of values one after the other. On the wire:
/// "STP1", kind and length of the body (32 bits each, least byte first), body.
class Frame {
 public:
  explicit Frame(uint32_t kind = 0, std::string body = "") : kind_(kind), body_(std::move(body)) {}

  Frame& add(int64_t number);
  Frame& add(const std::string& text);
  /// Values keep all their bits.
  Frame& add(std::span<const double> values);
  /// The next field; BadFrame if there is none.
  int64_t number();
  std::string text();
  std::vector<double> values();
  [[nodiscard]] bool done() const { return at_ == body_.size(); }
  /// BadFrame if there are fields left.
  void end() const;

  [[nodiscard]] uint32_t kind() const { return kind_; }
  [[nodiscard]] const std::string& body() const { return body_; }

 private:
  uint64_t take(size_t bytes);

  uint32_t kind_;
  std::string body_;
  size_t at_ = 0;
};

class Connection {
 public:
  /// Of a connected socket.
  explicit Connection(Descriptor socket);
  /// None, with the reason in `why`, if it cannot be made within `time`.
  static std::optional<Connection> to(const std::string& host, uint16_t port, std::chrono::milliseconds time,
                                      std::string& why);

  [[nodiscard]] int fd() const { return socket_.get(); }
  /// "10.0.0.3:41234"
  [[nodiscard]] const std::string& peer() const { return peer_; }

  void push(const Frame& frame);
  [[nodiscard]] bool has_output() const { return sent_ < output_.size(); }
  /// Sends what can be sent now; false if the connection is broken.
  bool flush();
  /// Takes in what is there; false if the other end closed it, or it is broken. What came before can still
  /// be read by next().
  bool fill();
  /// The next whole message; BadFrame if what came is none, or is longer than 1 MiB.
  std::optional<Frame> next();
  /// No more will be sent.
  void finish() const;

 private:
  Descriptor socket_;
  std::string peer_;
  std::string input_, output_;
  size_t sent_ = 0;
};

class Listener {
 public:
  /// `port` 0: any that is free. Listens on this machine alone where `address` means it, else on all its
  /// addresses. InputError if the port cannot be had.
  Listener(const std::string& address, uint16_t port);

  [[nodiscard]] int fd() const { return socket_.get(); }
  [[nodiscard]] uint16_t port() const;
  /// The next that wants in, if there is one.
  [[nodiscard]] std::optional<Connection> accept() const;

 private:
  Descriptor socket_;
};

/// What poll(2) waits for.
struct Watched {
  int fd;
  bool output;             // for room to send, besides input
  bool ready_in = false;   // input, or the end of it
  bool ready_out = false;  // room
};
/// Waits until something is ready, at most `time`.
void wait_for_any(std::vector<Watched>& watched, std::chrono::milliseconds time);

/// Ends a wait_for_any of another thread: watch fd().
class Waker {
 public:
  Waker();
  [[nodiscard]] int fd() const { return event_.get(); }
  void wake() const;
  void reset() const;

 private:
  Descriptor event_;
};

}  // namespace stp
