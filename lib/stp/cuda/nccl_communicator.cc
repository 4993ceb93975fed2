#include "stp/cuda/nccl_communicator.h"

#include <stdexcept>
#include <utility>

#include "stp/cuda/cuda_memory.h"
#include "stp/cuda/cuda_stream.h"
#include "stp/device/traffic_counter.h"

namespace stp::cuda {
namespace {

class NcclCommunicator : public Communicator {
 public:
  /// `comm`: null in a group of one.
  NcclCommunicator(NcclSession& session, std::shared_ptr<NcclComm> comm, GroupUse use, NcclEnqueue enqueue)
      : session_(session), comm_(std::move(comm)), use_(use), enqueue_(std::move(enqueue)) {}

  [[nodiscard]] int size() const override { return comm_ ? comm_->size() : 1; }
  [[nodiscard]] int index() const override { return comm_ ? comm_->index() : 0; }

  void all_reduce(Stream& stream, Reduce reduce, const Tensor& tensor) override {
    check(use_ != GroupUse::transfers);
    if (!comm_) return;
    give(stream, CallKind::all_reduce, tensor.bytes(),
         [comm = comm_, reduce, tensor](cudaStream_t to, const std::string& where) {
           comm->all_reduce(where, reduce, tensor.type, data<std::byte>(tensor), count(tensor), to);
         });
  }

  void all_gather(Stream& stream, const Tensor& in, const Tensor& out) override {
    check(use_ != GroupUse::transfers);
    check(in.columns == out.columns && in.type == out.type && out.rows == size() * in.rows);
    if (!comm_) return copy(stream, CallKind::all_gather, in, out);
    give(stream, CallKind::all_gather, in.bytes(),
         [comm = comm_, in, out](cudaStream_t to, const std::string& where) {
           comm->all_gather(where, in.type, data<std::byte>(in), data<std::byte>(out), count(in), to);
         });
  }

  void reduce_scatter(Stream& stream, const Tensor& in, const Tensor& out) override {
    check(use_ != GroupUse::transfers);
    check(in.columns == out.columns && in.type == out.type && in.rows == size() * out.rows);
    if (!comm_) return copy(stream, CallKind::reduce_scatter, in, out);
    give(stream, CallKind::reduce_scatter, in.bytes(),
         [comm = comm_, in, out](cudaStream_t to, const std::string& where) {
           comm->reduce_scatter(where, in.type, data<std::byte>(in), data<std::byte>(out), count(out), to);
         });
  }

  void send(Stream& stream, const Tensor& tensor, int to) override {
    check(use_ != GroupUse::collectives && to != index() && to >= 0 && to < size());
    give(stream, CallKind::send, tensor.bytes(),
         [comm = comm_, tensor, to](cudaStream_t on, const std::string& where) {
           comm->send(where, tensor.type, data<std::byte>(tensor), count(tensor), to, on);
         });
  }

  void receive(Stream& stream, const Tensor& tensor, int from) override {
    check(use_ != GroupUse::collectives && from != index() && from >= 0 && from < size());
    give(stream, CallKind::receive, 0,
         [comm = comm_, tensor, from](cudaStream_t on, const std::string& where) {
           comm->receive(where, tensor.type, data<std::byte>(tensor), count(tensor), from, on);
         });
  }

  [[nodiscard]] Traffic traffic() const override { return counter_->traffic(); }

 private:
  static size_t count(const Tensor& tensor) { return static_cast<size_t>(tensor.elements()); }
  static void check(bool fits) {
    if (!fits)
      throw std::logic_error("a call of NCCL whose tensors or peer do not fit, or that its group is not for");
  }

  void copy(Stream& stream, CallKind kind, const Tensor& in, const Tensor& out) {
    give(stream, kind, in.bytes(), [&session = session_, in, out](cudaStream_t on, const std::string&) {
      session.copy(data<std::byte>(out), data<std::byte>(in), in.bytes(), on);
    });
  }

  void give(Stream& stream, CallKind kind, size_t bytes, NcclCall call) {
    enqueue_(stream, [counter = counter_, kind, bytes, call = std::move(call)](cudaStream_t on,
                                                                               const std::string& where) {
      call(on, where);
      counter->count(kind, static_cast<int64_t>(bytes));
    });
  }

  NcclSession& session_;
  const std::shared_ptr<NcclComm> comm_;
  const GroupUse use_;
  const NcclEnqueue enqueue_;
  // What issued work needs outlives the communicator's own end.
  const std::shared_ptr<TrafficCounter> counter_ = std::make_shared<TrafficCounter>();
};

}  // namespace

void enqueue_on_cuda_stream(Stream& stream, NcclCall call) {
  CudaStream& ours = cuda_stream(stream);
  ours.enqueue([&ours, op = ours.op(), call = std::move(call)](cudaStream_t handle) {
    call(handle, ours.run().where(ours.rank(), ours.name(), op));
  });
}

std::unique_ptr<Communicator> make_nccl_communicator(NcclSession& session, const std::string& name,
                                                     const std::vector<int>& members, int index, GroupUse use,
                                                     NcclEnqueue enqueue) {
  if (index < 0 || index >= static_cast<int>(members.size()))
    throw std::logic_error("group " + name + " has no member " + std::to_string(index));
  std::shared_ptr<NcclComm> comm;
  if (members.size() > 1) {
    comm = session.found(name, members, index, use);
    if (members.size() == 2 && use != GroupUse::collectives) session.connect(*comm);
  }
  return std::make_unique<NcclCommunicator>(session, std::move(comm), use, std::move(enqueue));
}

}  // namespace stp::cuda
