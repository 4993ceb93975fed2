// Collectives and transfers among threads, against plain sums of numbers that add up exactly.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "stp/backend/kernels.h"
#include "stp/cpu/cpu_backend.h"

namespace stp {
namespace {

// Ranks of a group, each with a stream and its end of the group.
class Group {
 public:
  explicit Group(int size) : backend_(make_cpu_backend({.world_size = size, .deadline_s = 10})) {
    std::vector<int> members;
    for (int rank = 0; rank < size; ++rank) members.push_back(rank);
    for (int rank = 0; rank < size; ++rank) {
      streams_.push_back(device(rank).make_stream("tp", StreamPriority::communication));
      ends_.push_back(backend_->communicator("tp", members, rank));
    }
  }
  [[nodiscard]] int size() const { return static_cast<int>(ends_.size()); }
  Device& device(int rank) { return backend_->device(rank); }
  Stream& stream(int rank) { return *streams_[rank]; }
  Communicator& end(int rank) { return *ends_[rank]; }

  Tensor tensor(int rank, const std::vector<double>& values, int64_t rows) {
    Tensor made = device(rank).allocate(stream(rank), MemoryKind::working, DType::f64, rows,
                                        static_cast<int64_t>(values.size()) / rows);
    device(rank).upload(stream(rank), made, std::as_bytes(std::span(values)));
    return made;
  }
  std::vector<double> values(int rank, const Tensor& tensor) {
    std::vector<double> read(tensor.elements());
    device(rank).download(stream(rank), tensor, std::as_writable_bytes(std::span(read)));
    return read;
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Communicator>> ends_;
};

// Whole numbers: sums are exact in any order.
std::vector<double> numbers(int rank, int64_t count) {
  std::vector<double> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<double>((rank + 1) * 1000003 % 977 + i % 331);
  return values;
}

// Odd lengths, one of more than one piece.
constexpr int64_t kLengths[] = {1, 7, 40001};

TEST(LocalCommunicator, AllReducesSumsAndMaxima) {
  for (const int size : {1, 2, 3, 4})
    for (const int64_t length : kLengths)
      for (const Reduce reduce : {Reduce::sum, Reduce::maximum}) {
        Group group(size);
        std::vector<Tensor> tensors;
        for (int rank = 0; rank < size; ++rank) {
          tensors.push_back(group.tensor(rank, numbers(rank, length), 1));
          group.end(rank).all_reduce(group.stream(rank), reduce, tensors.back());
        }
        std::vector<double> expected = numbers(0, length);
        for (int rank = 1; rank < size; ++rank)
          for (int64_t i = 0; i < length; ++i) {
            const double other = numbers(rank, length)[i];
            expected[i] = reduce == Reduce::sum ? expected[i] + other : std::max(expected[i], other);
            if (length > 100) i += 97;  // some will do
          }
        for (int rank = 0; rank < size; ++rank) {
          const auto found = group.values(rank, tensors[rank]);
          for (int64_t i = 0; i<length; i += length> 100 ? 98 : 1)
            ASSERT_EQ(found[i], expected[i]) << size << " " << length << " " << i;
        }
        if (size > 1) {
          EXPECT_EQ(group.end(0).traffic().all_reduce_bytes, length * 8);
        }
      }
}

TEST(LocalCommunicator, GathersAndScatters) {
  for (const int size : {1, 2, 3}) {
    Group group(size);
    std::vector<Tensor> gathered, scattered;
    for (int rank = 0; rank < size; ++rank) {
      const Tensor in = group.tensor(rank, numbers(rank, 10), 2);
      gathered.push_back(group.tensor(rank, std::vector<double>(10 * size, -1), 2 * size));
      group.end(rank).all_gather(group.stream(rank), in, gathered.back());
      const Tensor sum = group.tensor(rank, numbers(rank, 6 * size), size);
      scattered.push_back(group.tensor(rank, std::vector<double>(6, -1), 1));
      group.end(rank).reduce_scatter(group.stream(rank), sum, scattered.back());
    }
    for (int rank = 0; rank < size; ++rank) {
      const auto all = group.values(rank, gathered[rank]), piece = group.values(rank, scattered[rank]);
      for (int from = 0; from < size; ++from)
        for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(all[from * 10 + i], numbers(from, 10)[i]);
      for (int64_t i = 0; i < 6; ++i) {
        double sum = 0;
        for (int from = 0; from < size; ++from) sum += numbers(from, 6 * size)[rank * 6 + i];
        EXPECT_EQ(piece[i], sum);
      }
    }
  }
}

TEST(LocalCommunicator, TheNthSendMeetsTheNthReceive) {
  Group group(2);
  std::vector<Tensor> received;
  for (int i = 0; i < 20; ++i) {
    group.end(0).send(group.stream(0), group.tensor(0, numbers(i, 5), 1), 1);
    received.push_back(group.tensor(1, std::vector<double>(5, -1), 1));
    group.end(1).receive(group.stream(1), received.back(), 0);
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(group.values(1, received[i]), numbers(i, 5));
  group.device(0).synchronize();
  EXPECT_EQ(group.end(0).traffic().sent_bytes, 20 * 5 * 8);
}

}  // namespace
}  // namespace stp
