// The parameters of one chunk of a rank: weights, gradients, and the optimizer's state.
#pragma once

#include <vector>

#include "stp/device/device.h"
#include "stp/runtime/training.h"

namespace stp {

/// One tensor of parameters, this rank's share.
struct ParameterState {
  Parameter parameter;
  int layer;  // of the whole model; −1 for embedding and head
  Tensor weight, gradient, first_moment, second_moment;
  Tensor master;  // in fp32 if weights are bf16, else the weight itself
};

/// Parameters in the order of unit_parameters(); empty where the chunk has no such unit.
struct ChunkState {
  int first_layer = 0;                                 // of the whole model
  std::vector<std::vector<ParameterState>> attn, mlp;  // by layer of the chunk
  std::vector<ParameterState> head;
  std::vector<ParameterState> embedding;  // one entry, or none

  [[nodiscard]] std::vector<ParameterState*> all();
};

/// The part of the model that a chunk holds.
struct ChunkShape {
  int first_layer, layers;
  bool first, last;  // whether it has the embedding, and the head
};

/// Makes a chunk's parameters, with their initial values, for place `tp_index` of the tensor-parallel group.
ChunkState make_chunk(Device& device, Stream& stream, const Training& training, const ChunkShape& shape,
                      int tp_index);

/// Frees the memory of a parameter.
void release_parameter(Device& device, Stream& stream, ParameterState& state);

/// Elements of `tensor` (of any type but i32) as doubles, and back, rounded. For set-up and inspection, not
/// for steps.
std::vector<double> download_doubles(Device& device, Stream& stream, const Tensor& tensor);
void upload_doubles(Device& device, Stream& stream, const Tensor& tensor, const std::vector<double>& values);

/// Calls place(part, first_row, rows, first_column, columns, offset) for each part of a parameter that place
/// `tp_index` of `tp` holds: the block in the full matrix, and its offset in the rank's own tensor.
template <typename PlaceBlock>
void for_each_block(const Parameter& parameter, int tp, int tp_index, PlaceBlock place) {
  int64_t offset = 0;
  for (const ParameterPart& part : parameter.parts) {
    const int64_t rows = part.local_rows(tp), columns = part.local_columns(tp);
    place(part, part.split == Split::rows ? tp_index * rows : 0, rows,
          part.split == Split::columns ? tp_index * columns : 0, columns, offset);
    offset += rows * columns;
  }
}

}  // namespace stp
