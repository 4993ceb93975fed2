#include "stp/runtime/chunk_state.h"

#include <algorithm>
#include <string>
#include <thread>

#include "stp/device/bfloat16.h"
#include "stp/device/element_type.h"

namespace stp {
namespace {

// Calls work(begin, end) for ranges of `rows`, in parallel if there are many elements: a shard of a real
// model has hundreds of millions.
template <typename Work>
void on_all_processors(int64_t rows, int64_t elements, Work work) {
  constexpr int64_t kWorthAThread = 1 << 20;
  const int64_t most = std::min<int64_t>(rows, std::thread::hardware_concurrency());
  const int64_t threads = std::clamp<int64_t>(elements / kWorthAThread, 1, std::max<int64_t>(most, 1));
  std::vector<std::jthread> others;
  for (int64_t i = 1; i < threads; ++i)
    others.emplace_back(work, rows * i / threads, rows * (i + 1) / threads);
  work(0, rows / threads);
}

ParameterState make_parameter(Device& device, Stream& stream, const Training& training,
                              const Parameter& parameter, int layer, int tp_index) {
  const int tp = training.grid.tp;
  // Kernels take vectors as one row.
  const bool vector = parameter.vector();
  const int64_t rows = vector ? 1 : parameter.local_rows(tp);
  const int64_t columns = vector ? parameter.local_rows(tp) : parameter.columns(tp);
  ParameterState state{parameter, layer, {}, {}, {}, {}, {}};
  const auto make = [&](MemoryKind kind, DType type) {
    Tensor tensor = device.allocate(stream, kind, type, rows, columns);
    if (kind != MemoryKind::weights) device.kernels().fill(stream, tensor, 0);
    return tensor;
  };
  const DType state_type = statistics_type(training.type);
  state.weight = make(MemoryKind::weights, training.type);
  state.gradient = make(MemoryKind::gradients, state_type);
  state.first_moment = make(MemoryKind::optimizer, state_type);
  state.second_moment = make(MemoryKind::optimizer, state_type);

  std::vector<double> values(static_cast<size_t>(rows * columns));
  for_each_block(parameter, tp, tp_index,
                 [&](const ParameterPart& part, int64_t first_row, int64_t block_rows, int64_t first_column,
                     int64_t block_columns, int64_t offset) {
                   const std::string name = parameter_name(part, layer);
                   on_all_processors(block_rows, block_rows * block_columns, [&](int64_t begin, int64_t end) {
                     initial_values(training.initialisation, name, first_row + begin, end - begin,
                                    first_column, block_columns,
                                    values.data() + offset + begin * block_columns);
                   });
                 });
  upload_doubles(device, stream, state.weight, values);
  state.master = state.weight;
  if (training.type == DType::bf16) {
    state.master = make(MemoryKind::optimizer, state_type);
    upload_doubles(device, stream, state.master, values);
  }
  return state;
}

}  // namespace

std::vector<ParameterState*> ChunkState::all() {
  std::vector<ParameterState*> states;
  const auto add = [&](std::vector<ParameterState>& some) {
    for (ParameterState& state : some) states.push_back(&state);
  };
  add(embedding);
  for (size_t layer = 0; layer < attn.size(); ++layer) {
    add(attn[layer]);
    add(mlp[layer]);
  }
  add(head);
  return states;
}

ChunkState make_chunk(Device& device, Stream& stream, const Training& training, const ChunkShape& shape,
                      int tp_index) {
  ChunkState chunk;
  chunk.first_layer = shape.first_layer;
  const auto make = [&](const std::vector<Parameter>& parameters, int layer) {
    std::vector<ParameterState> states;
    for (const Parameter& parameter : parameters)
      states.push_back(make_parameter(device, stream, training, parameter, layer, tp_index));
    return states;
  };
  if (shape.first) chunk.embedding = make(unit_parameters(training.model, Unit::embedding), -1);
  for (int layer = 0; layer < shape.layers; ++layer) {
    chunk.attn.push_back(make(unit_parameters(training.model, Unit::attn), shape.first_layer + layer));
    chunk.mlp.push_back(make(unit_parameters(training.model, Unit::mlp), shape.first_layer + layer));
  }
  if (shape.last) chunk.head = make(unit_parameters(training.model, Unit::head), -1);
  return chunk;
}

void release_parameter(Device& device, Stream& stream, ParameterState& state) {
  if (state.master.memory != state.weight.memory) device.release(stream, state.master);
  for (Tensor* tensor : {&state.weight, &state.gradient, &state.first_moment, &state.second_moment})
    device.release(stream, *tensor);
}

std::vector<double> download_doubles(Device& device, Stream& stream, const Tensor& tensor) {
  return with_element<Bfloat16>(tensor.type, "a parameter", [&](auto zero) {
    std::vector<decltype(zero)> elements(static_cast<size_t>(tensor.elements()));
    device.download(stream, tensor, std::as_writable_bytes(std::span(elements)));
    return std::vector<double>(elements.begin(), elements.end());
  });
}

void upload_doubles(Device& device, Stream& stream, const Tensor& tensor, const std::vector<double>& values) {
  with_element<Bfloat16>(tensor.type, "a parameter", [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> elements(values.size());
    std::transform(values.begin(), values.end(), elements.begin(), [](double value) {
      // Not directly from double: a bf16 weight is its fp32 master, rounded.
      return T(static_cast<Wide<T>>(value));
    });
    device.upload(stream, tensor, std::as_bytes(std::span(elements)));
  });
}

}  // namespace stp
