// The runtime on CPU. Ratios are taken within one run, since machines are noisy:
//
//   step            one rank: `blas_share` is the share of the step inside BLAS; `of_gemm_rate` is the rate
//   there
//                   relative to that of the same GEMMs alone, a moment before
//   tensor_parallel two ranks of one model: `of_two_alone` is their rate relative to the summed rate of two
//                   independent ranks that train the same model at the same time
#include <benchmark/benchmark.h>

#include <chrono>
#include <thread>

#include "baselines/registry.h"
#include "stp/base/data.h"
#include "stp/cpu/cpu_backend.h"
#include "stp/device/kernels.h"
#include "stp/model/config.h"
#include "stp/program/lower.h"
#include "stp/runtime/trainer.h"

namespace {

using namespace stp;

constexpr int kMicrobatches = 2;

// 2048 tokens a step.
Training training(int tp) {
  Training training;
  training.model = read_model(data_path("models/hidden-512.json"));
  training.seq = 512;
  training.microbatch_size = 2;
  training.grid = {.tp = tp, .cp = 1, .dp = 1, .pp = 1};
  training.record_times = false;
  return training;
}

std::vector<TokenSample> samples(const Training& training) {
  std::vector<TokenSample> all(static_cast<size_t>(kMicrobatches) * training.microbatch_size);
  uint32_t state = 1;
  for (TokenSample& sample : all)
    for (int i = 0; i < 2 * training.seq; ++i) {
      state = state * 1664525 + 1013904223;
      (i % 2 == 0 ? sample.tokens : sample.targets).push_back(static_cast<int32_t>((state >> 8) % 2048));
    }
  return all;
}

// A model in training on a backend of its own.
class Run {
 public:
  explicit Run(int tp)
      : training_(training(tp)),
        backend_(cpu::make_backend({.world_size = tp})),
        trainer_(*backend_,
                 lower(make_schedule(find_generator("1f1b"), {1, kMicrobatches}), {training_.model.layers},
                       {.optimizer = true, .embedding = true}),
                 training_),
        samples_(samples(training_)) {
    step();  // pages and tables
  }
  double step() {
    const auto start = std::chrono::steady_clock::now();
    trainer_.step(samples_);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  Backend& backend() { return *backend_; }

 private:
  Training training_;
  std::unique_ptr<Backend> backend_;
  Trainer trainer_;
  std::vector<TokenSample> samples_;
};

// Operations per second of the GEMMs of a layer's forward and its gradients, one after the other, alone.
double gemm_rate() {
  const Training t = training(1);
  const auto backend = cpu::make_backend({.world_size = 1});
  Device& device = backend->device(0);
  const auto stream = device.make_stream("compute", StreamPriority::compute);
  const auto make = [&](int64_t rows, int64_t columns) {
    Tensor tensor = device.allocate(*stream, MemoryKind::working, DType::f32, rows, columns);
    device.kernels().issue(*stream, kernel::Fill{.tensor = tensor, .value = 0.5});
    return tensor;
  };
  const int64_t tokens = t.tokens(), h = t.model.hidden;
  for (int repeat = 0; repeat < 3; ++repeat)
    for (const int64_t out : {2 * h, h, int64_t{2} * t.model.ffn}) {
      Tensor x = make(tokens, h), w = make(out, h), y = make(tokens, out);
      device.kernels().issue(*stream, kernel::Gemm{.transpose_b = true, .a = x, .b = w, .c = y});
      device.kernels().issue(*stream, kernel::Gemm{.a = y, .b = w, .c = x});
      device.kernels().issue(*stream, kernel::Gemm{.transpose_a = true, .a = y, .b = x, .beta = 1, .c = w});
      for (Tensor* tensor : {&x, &w, &y}) device.release(*stream, *tensor);
    }
  device.synchronize();
  const cpu::BlasUse use = cpu::blas_use(*backend, 0);
  return use.flops / use.seconds;
}

void step(benchmark::State& state) {
  Run run(1);
  double alone = 0, seconds = 0;
  cpu::BlasUse in_steps;
  for ([[maybe_unused]] auto _ : state) {
    state.PauseTiming();
    alone += gemm_rate();
    const cpu::BlasUse before = cpu::blas_use(run.backend(), 0);
    state.ResumeTiming();
    seconds += run.step();
    const cpu::BlasUse after = cpu::blas_use(run.backend(), 0);
    in_steps.seconds += after.seconds - before.seconds;
    in_steps.flops += after.flops - before.flops;
  }
  const double rate = in_steps.flops / in_steps.seconds;
  state.counters["blas_share"] = in_steps.seconds / seconds;
  state.counters["gflop_per_s"] = rate / 1e9;
  state.counters["of_gemm_rate"] = rate / (alone / static_cast<double>(state.iterations()));
}
BENCHMARK(step)->Unit(benchmark::kMillisecond)->UseRealTime();

void tensor_parallel(benchmark::State& state) {
  Run shared(2), first(1), second(1);
  double together = 0, alone = 0;
  for ([[maybe_unused]] auto _ : state) {
    together += shared.step();
    state.PauseTiming();
    double times[2];
    std::thread other([&] { times[1] = second.step(); });
    times[0] = first.step();
    other.join();
    alone += (times[0] + times[1]) / 2;
    state.ResumeTiming();
  }
  state.counters["of_two_alone"] = alone / (2 * together);
}
BENCHMARK(tensor_parallel)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
