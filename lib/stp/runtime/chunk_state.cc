#include "stp/runtime/chunk_state.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>

namespace stp {
namespace {

// Calls work(begin, end) for ranges of `rows`, in parallel if there are many elements: a shard of a real
// model has hundreds of millions.
template <typename Work>
void on_all_processors(int64_t rows, int64_t elements, Work work) {
  constexpr int64_t kWorthAThread = 1 << 20;
  int64_t threads = std::max<int64_t>(std::min(elements / kWorthAThread, rows), 1);
  if (threads > 1)  // the system's number of processors takes longer than a small shard
    threads = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, threads);
  std::vector<std::jthread> others;
  for (int64_t i = 1; i < threads; ++i)
    others.emplace_back(work, rows * i / threads, rows * (i + 1) / threads);
  work(0, rows / threads);
}

// Alignment of a parameter in the buffers, for vector loads and cuBLAS's widest: 256 bytes of bf16.
constexpr int64_t kAlignment = 128;
int64_t aligned(int64_t elements, int64_t to) { return (elements + to - 1) / to * to; }

// Kernels take vectors as one row.
int64_t rows_of(const ParameterState& state) {
  return state.parameter.vector() ? 1 : state.parameter.local_rows(state.shards);
}
int64_t columns_of(const ParameterState& state) {
  const Parameter& parameter = state.parameter;
  return parameter.vector() ? parameter.local_rows(state.shards) : parameter.columns(state.shards);
}

// A parameter's values, or, if they repeat, the first period.
std::vector<double> initial_shard(RunGuard& guard, const Training& training, const ParameterState& state) {
  const RunGuard::Work work(guard);  // other processes may have less to make
  if (training.initial_repeat > 0 && state.weight.elements() > training.initial_repeat) {
    std::vector<double> values(static_cast<size_t>(training.initial_repeat));
    initial_values(training.initialisation, parameter_name(state.parameter.parts.front(), state.layer), 0, 1,
                   0, training.initial_repeat, values.data());
    return values;
  }
  std::vector<double> values(static_cast<size_t>(state.weight.elements()));
  for_each_block(state, [&](const MatrixShard& block, int64_t offset) {
    on_all_processors(block.rows, block.rows * block.columns, [&](int64_t begin, int64_t end) {
      initial_values(training.initialisation, block.name, block.first_row + begin, end - begin,
                     block.first_column, block.columns, values.data() + offset + begin * block.columns);
    });
  });
  return values;
}

int bucket_of(std::span<const Bucket> buckets, Unit unit, int layer) {
  if (buckets.empty()) return 0;
  for (size_t bucket = 0; bucket < buckets.size(); ++bucket)
    if (buckets[bucket].has(unit, layer)) return static_cast<int>(bucket);
  throw std::logic_error(to_string(unit) + " of layer " + std::to_string(layer) + " is in no bucket");
}

// Places parameters one after the other; returns the end of the last.
int64_t place_parameters(const std::vector<ParameterState*>& states, bool partial, int64_t begin) {
  for (ParameterState* state : states) {
    if (state->parameter.partial_gradient() != partial) continue;
    state->begin = begin;
    begin = aligned(begin + rows_of(*state) * columns_of(*state), kAlignment);
  }
  return begin;
}

// Buffers for the parameters of a bucket, with their initial values.
BucketState make_bucket(RunGuard& guard, Device& device, Stream& stream, const Training& training,
                        const std::vector<ParameterState*>& states, const Strategy& strategy,
                        const RankGrid::Place& place) {
  BucketState bucket;
  bucket.replicas = states.front()->parameter.replicas;
  const Axes sharing = strategy.zero ? bucket.replicas : Axes{};
  const int shares = strategy.grid().along(sharing).size();
  bucket.partial_begin = place_parameters(states, false, 0);
  const int64_t elements = aligned(place_parameters(states, true, bucket.partial_begin), kAlignment * shares);
  const int64_t own = elements / shares;
  bucket.share_begin = own * strategy.grid().index(place, sharing);
  const DType state_type = statistics_type(training.type);
  const auto make = [&](MemoryKind kind, DType type, int64_t size) {
    Tensor tensor = device.allocate(stream, kind, type, 1, size);
    device.kernels().issue(
        stream, kernel::Fill{.tensor = tensor, .value = 0});  // what lies between parameters stays zero
    return tensor;
  };
  bucket.weights = make(MemoryKind::weights, training.type, elements);
  bucket.gradients = make(MemoryKind::gradients, state_type, elements);
  bucket.first_moment = make(MemoryKind::optimizer, state_type, own);
  bucket.second_moment = make(MemoryKind::optimizer, state_type, own);
  bucket.master = training.type == DType::bf16 ? make(MemoryKind::optimizer, state_type, own)
                                               : bucket.weights.part(bucket.share_begin, 1, own);
  if (strategy.post_validation) {
    std::vector<Tensor> changed{bucket.first_moment, bucket.second_moment, bucket.master};
    if (training.type == DType::bf16) changed.push_back(bucket.share_of(bucket.weights));
    for (const Tensor& tensor : changed)
      bucket.undo.emplace_back(tensor, make(MemoryKind::optimizer, tensor.type, own));
  }
  for (ParameterState* state : states) {
    const int64_t rows = rows_of(*state), columns = columns_of(*state);
    state->weight = bucket.weights.part(state->begin, rows, columns);
    state->gradient = bucket.gradients.part(state->begin, rows, columns);
    std::vector<double> values = initial_shard(guard, training, *state);
    upload_doubles(device, stream, state->weight, values);
    if (training.type == DType::bf16)
      upload_share(device, stream, bucket, bucket.master, *state, std::move(values));
  }
  return bucket;
}

}  // namespace

std::vector<ParameterState*> ChunkState::all() {
  std::vector<ParameterState*> states;
  for (const UnitOfChunk& of : units)
    for (ParameterState& state : parameters[static_cast<size_t>(of.unit)][of.layer]) states.push_back(&state);
  return states;
}

ChunkState make_chunk(RunGuard& guard, Device& device, Stream& stream, const Training& training,
                      const ChunkShape& shape, const Strategy& strategy, const RankGrid::Place& place) {
  const RankGrid grid = strategy.grid();
  ChunkState chunk;
  chunk.first_layer = shape.first_layer;
  chunk.units =
      units_of_chunk(shape.layers, {.embedding = shape.first,
                                    .head = shape.last,
                                    .vision_layers = shape.first ? training.model.vision.layers : 0});
  for (const auto& [unit, layer] : chunk.units) {
    const int first = is_vision(unit) ? 0 : shape.first_layer, whole = is_of_layer(unit) ? first + layer : -1;
    std::vector<ParameterState>& states = chunk.parameters[static_cast<size_t>(unit)].emplace_back();
    const int bucket = bucket_of(shape.buckets, unit, layer);
    for (const Parameter& parameter : unit_parameters(training.model, unit)) {
      Axes axes = parameter.shards;
      axes.pp = shape.shares_vocabulary && (unit == Unit::head || unit == Unit::embedding);
      states.push_back(
          {parameter, whole, 0, {}, {}, bucket, grid.along(axes).size(), grid.index(place, axes)});
    }
  }

  int tables = 0;
  std::map<std::tuple<int, int, Axes>, std::vector<ParameterState*>> buckets;  // shared tables are last
  for (ParameterState* state : chunk.all()) {
    const bool table = training.model.tied() && state->parameter.parts.front().name == "embedding.weight";
    buckets[{table ? ++tables : 0, state->bucket, state->parameter.replicas}].push_back(state);
  }
  for (const auto& [of, states] : buckets) {
    for (ParameterState* state : states) state->bucket = static_cast<int>(chunk.buckets.size());
    chunk.buckets.push_back(make_bucket(guard, device, stream, training, states, strategy, place));
    chunk.buckets.back().reduced_with = std::get<1>(of);
  }
  return chunk;
}

void release_chunk(Device& device, Stream& stream, ChunkState& chunk) {
  for (BucketState& bucket : chunk.buckets) {
    if (bucket.master.memory != bucket.weights.memory) device.release(stream, bucket.master);
    for (Tensor* tensor : {&bucket.weights, &bucket.gradients, &bucket.first_moment, &bucket.second_moment})
      device.release(stream, *tensor);
    for (auto& [changed, copy] : bucket.undo) device.release(stream, copy);
  }
}

void upload_share(Device& device, Stream& stream, const BucketState& bucket, const Tensor& shared,
                  const ParameterState& state, std::vector<double> values) {
  const int64_t begin = std::max(state.begin, bucket.share_begin);
  const int64_t end =
      std::min(state.begin + state.weight.elements(), bucket.share_begin + bucket.share_size());
  if (begin >= end) return;
  std::rotate(values.begin(), values.begin() + (begin - state.begin) % std::ssize(values), values.end());
  values.resize(std::min<size_t>(values.size(), end - begin));
  upload_doubles(device, stream, shared.part(begin - bucket.share_begin, 1, end - begin), values);
}

}  // namespace stp
