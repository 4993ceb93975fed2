#include "support/fake_cuda.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace {

constexpr int kRubbish = 0xA5;
constexpr float kStepMilliseconds = 0.01F;
constexpr size_t kMostSteps = 1024;
/// Steps that all streams together take each time the host asks.
constexpr int kStepsPerQuery = 3;
constexpr size_t kDefaultShared = size_t{48} << 10, kMostShared = size_t{227} << 10;
/// What a kernel declares that no test says anything of: a word for each warp of a block.
constexpr size_t kDeclaredShared = 32 * sizeof(float);
/// Multiprocessors, and blocks of any kernel on each: few, so that kernels must go over their data in
/// strides.
constexpr int kMultiprocessors = 3, kBlocksEach = 2;
/// Behind a block of memory, for who writes past its end.
constexpr size_t kMargin = 256;
constexpr unsigned char kUntouched = 0xAB;

/// One recording of an event: later ones change nothing for who waits already.
struct FakeRecord {
  bool passed = false;
  uint64_t time = 0;  // in steps
};
struct FakeEvent {
  std::shared_ptr<FakeRecord> latest;  // null before the first
  bool captured = false;               // recorded in a graph alone

  [[nodiscard]] bool passed() const { return latest == nullptr || latest->passed; }
};
struct FakeStep {
  std::function<void()> work;                  // may be empty
  std::shared_ptr<FakeRecord> waits_for = {};  // may be null
  std::function<bool()> ready = {};            // may be empty
};
struct FakeGraph {
  std::vector<FakeStep> steps;
};
struct FakeStream {
  std::deque<FakeStep> steps;
  std::unique_ptr<FakeGraph> captured;  // while it is
  bool spoilt = false;                  // the capture, by a call that cannot be captured
  bool gone = false;                    // but for what it was given
};
struct FakeBlock {
  size_t bytes;
  bool freed = false;  // by the host's calls
};

// One device, and all that was made on it.
struct FakeDevice {
  std::mutex mutex;
  std::mt19937 random{1};
  bool held = false;
  std::function<bool()> multiprocessor_free;  // may be empty
  uint64_t steps = 0;
  std::vector<std::unique_ptr<FakeStream>> streams;
  std::vector<std::unique_ptr<FakeEvent>> events;
  std::map<void*, FakeBlock> memory;                         // all that was ever taken, by address
  size_t allocated = 0;                                      // as the streams have come
  size_t pool = 0;                                           // held for them, until it is trimmed
  std::set<void*> pinned;                                    // memory of the host
  std::map<const void*, size_t> declared;                    // shared memory by kernel
  std::map<std::pair<int, const void*>, size_t> added_most;  // what launches may add, by device and kernel
  std::map<std::string, cudaError_t> failing;
  std::map<std::string, size_t> calls;
  std::map<std::string, std::function<void()>> watched;
  std::function<void(const void* kernel)> launches_watched;  // may be empty

  std::optional<cudaError_t> called(const std::string& name) {
    ++calls[name];
    if (const auto look = watched.find(name); look != watched.end()) look->second();
    const auto found = failing.find(name);
    if (found == failing.end()) return {};
    const cudaError_t error = found->second;
    failing.erase(found);
    return error;
  }

  // True if any did.
  bool run_some(int count) {
    const uint64_t before = steps;
    std::erase_if(streams, [](const auto& stream) { return stream->gone && stream->steps.empty(); });
    while (count-- > 0 && !held) {
      std::vector<FakeStream*> ready;
      for (const auto& stream : streams)
        if (!stream->steps.empty() && may_run(stream->steps.front())) ready.push_back(stream.get());
      if (ready.empty()) break;
      FakeStream& stream = *ready[random() % ready.size()];
      const FakeStep step = std::move(stream.steps.front());
      stream.steps.pop_front();
      ++steps;
      if (step.work) step.work();
    }
    return steps != before;
  }
  static bool may_run(const FakeStep& step) {
    return (step.waits_for == nullptr || step.waits_for->passed) && (!step.ready || step.ready());
  }
};

FakeDevice& device() {
  static FakeDevice* one = new FakeDevice;  // never destroyed: others' statics may outlive it
  return *one;
}

thread_local int current_gpu = 0;
thread_local cudaError_t last_error = cudaSuccess;

// The block itself is never given back: what still reads it finds rubbish, and no other's data.
void spoil(void* at) {
  const size_t bytes = device().memory.at(at).bytes;
  const auto* const margin = static_cast<unsigned char*>(at) + bytes;
  if (std::any_of(margin, margin + kMargin, [](unsigned char each) { return each != kUntouched; })) {
    std::fprintf(stderr, "fake_cuda: a write past the end of %zu bytes\n", bytes);
    std::abort();
  }
  std::memset(at, kRubbish, bytes);
  device().allocated -= bytes;
}

size_t declared_shared(const void* kernel) {
  const auto found = device().declared.find(kernel);
  return found == device().declared.end() ? kDeclaredShared : found->second;
}

FakeStream& stream_of(cudaStream_t stream) { return *reinterpret_cast<FakeStream*>(stream); }
FakeEvent& event_of(cudaEvent_t event) { return *reinterpret_cast<FakeEvent*>(event); }

// A real one would have the host wait, beyond any deadline of ours.
void check_room(const FakeStream& stream) {
  if (stream.steps.size() < kMostSteps) return;
  std::fputs("fake_cuda: a stream is given more than a GPU takes\n", stderr);
  std::abort();
}

void push(cudaStream_t stream, FakeStep step) {
  FakeStream& to = stream_of(stream);
  if (to.captured) {
    to.captured->steps.push_back(std::move(step));
    return;
  }
  check_room(to);
  to.steps.push_back(std::move(step));
}

// What a real graph may hold, but none of ours should: then the capture is void.
bool refused_in_capture(cudaStream_t stream) {
  if (!stream_of(stream).captured) return false;
  return stream_of(stream).spoilt = true;
}
void push(cudaStream_t stream, std::function<void()> work) { push(stream, FakeStep{std::move(work)}); }

struct Locked {
  const std::lock_guard<std::mutex> lock{device().mutex};
  FakeDevice* operator->() const { return &device(); }
};

}  // namespace

namespace stp::fake_cuda {

void launch(cudaStream_t stream, std::function<void()> kernel) {
  const std::lock_guard lock(device().mutex);
  push(stream, std::move(kernel));
}
cudaError_t launch_kernel(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> run) {
  const std::lock_guard lock(device().mutex);
  if (const auto failure = device().called("cudaLaunchKernel")) return last_error = *failure;
  const auto& [blocks, threads, shared] = std::tie(config.gridDim, config.blockDim, config.dynamicSmemBytes);
  const auto raised = device().added_most.find({current_gpu, kernel});
  const bool fits = shared + declared_shared(kernel) <= kDefaultShared ||
                    (raised != device().added_most.end() && shared <= raised->second);
  if (!fits || blocks.x == 0 || blocks.y == 0 || blocks.z == 0 || blocks.y > 65535 || blocks.z > 65535 ||
      threads.x * threads.y * threads.z > 1024)
    return last_error = cudaErrorInvalidValue;
  if (device().launches_watched) device().launches_watched(kernel);
  push(config.stream, FakeStep{std::move(run), {}, device().multiprocessor_free});
  return cudaSuccess;
}
void launch_when(cudaStream_t stream, std::function<bool()> ready, std::function<void()> kernel) {
  const std::lock_guard lock(device().mutex);
  push(stream, FakeStep{std::move(kernel), {}, std::move(ready)});
}
void occupy(std::function<bool()> free) {
  const std::lock_guard lock(device().mutex);
  device().multiprocessor_free = std::move(free);
}
void reset(uint32_t seed) {
  const std::lock_guard lock(device().mutex);
  device().random.seed(seed);
  device().held = false;
  device().multiprocessor_free = {};
  device().failing.clear();
  device().calls.clear();
  device().watched.clear();
  device().launches_watched = {};
}
void hold(bool held) { Locked()->held = held; }
void fail_next(const std::string& call, cudaError_t error) { Locked()->failing[call] = error; }
void watch(const std::string& call, std::function<void()> look) { Locked()->watched[call] = std::move(look); }
void watch_launches(std::function<void(const void* kernel)> look) {
  Locked()->launches_watched = std::move(look);
}
size_t allocated_bytes() { return Locked()->allocated; }
size_t pool_bytes() { return Locked()->pool; }
void declare_shared(const void* kernel, size_t bytes) { Locked()->declared[kernel] = bytes; }
size_t calls(const std::string& name) { return Locked()->calls[name]; }

}  // namespace stp::fake_cuda

// The runtime's own names. Each takes the device's mutex, notes the call, and fails where a test says so.
#define FAKE_CALL()                           \
  const std::lock_guard lock(device().mutex); \
  if (const auto failure = device().called(__func__)) return *failure

extern "C" {

// Takes a second one, that nothing else knows of.
cudaError_t cudaSetDevice(int gpu) {
  if (gpu < 0 || gpu > 1) return cudaErrorInvalidDevice;
  current_gpu = gpu;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* gpu) {
  *gpu = current_gpu;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  FAKE_CALL();
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  FAKE_CALL();
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  FAKE_CALL();
  *value = attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin ? static_cast<int>(kMostShared)
           : attribute == cudaDevAttrMultiProcessorCount        ? kMultiprocessors
                                                                : 1;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  FAKE_CALL();
  *properties = {};
  std::strcpy(properties->name, "fake");
  properties->totalGlobalMem = size_t{1} << 30;
  properties->multiProcessorCount = kMultiprocessors;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorFake";
}
const char* cudaGetErrorString(cudaError_t) { return "as the test says"; }

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  FAKE_CALL();
  *attributes = {};
  attributes->sharedSizeBytes = declared_shared(kernel);
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  FAKE_CALL();
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
      static_cast<size_t>(value) + declared_shared(kernel) > kMostShared)
    return last_error = cudaErrorInvalidValue;
  device().added_most[{current_gpu, kernel}] = static_cast<size_t>(value);
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  FAKE_CALL();
  *blocks = kBlocksEach;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  FAKE_CALL();
  device().streams.push_back(std::make_unique<FakeStream>());
  *stream = reinterpret_cast<cudaStream_t>(device().streams.back().get());
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
// What was given to the stream is still done.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  FAKE_CALL();
  stream_of(stream).gone = true;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  FAKE_CALL();
  device().run_some(kStepsPerQuery);
  if (stream_of(stream).steps.empty()) return cudaSuccess;
  return last_error = cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  FAKE_CALL();
  push(stream, FakeStep{{}, event_of(event).latest});
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  FAKE_CALL();
  stream_of(stream).captured = std::make_unique<FakeGraph>();
  stream_of(stream).spoilt = false;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  std::unique_ptr<FakeGraph> captured = [&] {
    const std::lock_guard lock(device().mutex);
    return std::move(stream_of(stream).captured);
  }();
  FAKE_CALL();  // it ends the capture even where it fails
  if (captured == nullptr) return cudaErrorIllegalState;
  if (stream_of(stream).spoilt) return last_error = cudaErrorStreamCaptureInvalidated;
  *graph = reinterpret_cast<cudaGraph_t>(captured.release());
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  FAKE_CALL();
  *made = reinterpret_cast<cudaGraphExec_t>(new FakeGraph(*reinterpret_cast<FakeGraph*>(graph)));
  return cudaSuccess;
}
// As strict as it may be: graphs of as many steps alone fit each other.
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t made, cudaGraph_t graph, cudaGraphExecUpdateResultInfo*) {
  FAKE_CALL();
  auto& to = *reinterpret_cast<FakeGraph*>(made);
  const auto& from = *reinterpret_cast<FakeGraph*>(graph);
  if (to.steps.size() != from.steps.size()) return last_error = cudaErrorGraphExecUpdateFailure;
  to = from;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  FAKE_CALL();
  for (const FakeStep& step : reinterpret_cast<FakeGraph*>(graph)->steps) push(stream, step);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  FAKE_CALL();
  delete reinterpret_cast<FakeGraph*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  FAKE_CALL();
  delete reinterpret_cast<FakeGraph*>(graph);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  FAKE_CALL();
  device().events.push_back(std::make_unique<FakeEvent>());
  *event = reinterpret_cast<cudaEvent_t>(device().events.back().get());
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  FAKE_CALL();
  std::erase_if(device().events, [&](const auto& each) { return each.get() == &event_of(event); });
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  FAKE_CALL();
  event_of(event).captured = stream_of(stream).captured != nullptr;
  const auto record = event_of(event).latest = std::make_shared<FakeRecord>();
  push(stream, [record] { *record = {true, device().steps}; });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  FAKE_CALL();
  device().run_some(kStepsPerQuery);
  if (event_of(event).captured) return last_error = cudaErrorCapturedEvent;
  if (event_of(event).passed()) return cudaSuccess;
  return last_error = cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  FAKE_CALL();
  for (const cudaEvent_t event : {from, to})
    if (!event_of(event).passed()) return last_error = cudaErrorNotReady;
  *milliseconds =
      kStepMilliseconds * static_cast<float>(event_of(to).latest->time - event_of(from).latest->time);
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** at, size_t bytes, cudaStream_t stream) {
  FAKE_CALL();
  if (refused_in_capture(stream)) return cudaErrorStreamCaptureUnsupported;
  if (bytes == 0) return cudaErrorInvalidValue;
  *at = std::aligned_alloc(256, (bytes + kMargin + 255) / 256 * 256);
  device().memory[*at] = {bytes};
  std::memset(static_cast<std::byte*>(*at) + bytes, kUntouched, kMargin);
  push(stream, [at = *at, bytes] {
    std::memset(at, kRubbish, bytes);
    device().allocated += bytes;
    device().pool = std::max(device().pool, device().allocated);
  });
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  FAKE_CALL();
  *pool = nullptr;
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) {
  FAKE_CALL();
  device().pool = device().allocated;
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* at, cudaStream_t stream) {
  FAKE_CALL();
  if (refused_in_capture(stream)) return cudaErrorStreamCaptureUnsupported;
  const auto found = device().memory.find(at);
  if (found == device().memory.end() || std::exchange(found->second.freed, true))
    return cudaErrorInvalidValue;
  push(stream, [at] { spoil(at); });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t stream) {
  FAKE_CALL();
  push(stream, [=] { std::memset(at, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  FAKE_CALL();
  push(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t rows, cudaMemcpyKind, cudaStream_t stream) {
  FAKE_CALL();
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidValue;
  push(stream, [=] {
    for (size_t row = 0; row < rows; ++row)
      std::memcpy(static_cast<std::byte*>(to) + row * to_pitch,
                  static_cast<const std::byte*>(from) + row * from_pitch, width);
  });
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** at, size_t bytes, unsigned) {
  FAKE_CALL();
  *at = std::malloc(bytes);
  device().pinned.insert(*at);
  return cudaSuccess;
}
// Waits for the device, as CUDA does: nothing that can go on will use it.
cudaError_t cudaFreeHost(void* at) {
  FAKE_CALL();
  while (device().run_some(1)) {
  }
  device().pinned.erase(at);
  std::free(at);
  return cudaSuccess;
}

}  // extern "C"
