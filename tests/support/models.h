// Models, shapes and units for tests of what depends on them.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "stp/model/config.h"
#include "stp/model/work.h"

namespace stp {

inline ModelConfig model(const std::string& name) {
  return read_model(STP_SOURCE_DIR "/models/" + name + ".json");
}
inline const std::vector<std::string> kModels{"llm-12.1b", "llm-26.3b"};

inline double gemm_flops(const Work& work) {
  double sum = 0;
  for (const Gemm& gemm : work.gemms) sum += gemm.flops();
  return sum;
}

// Bytes that the forward of a unit keeps.
inline double kept_bytes(const ModelConfig& model, const Shape& shape, Implementation implementation,
                         Unit unit) {
  double bytes = 0;
  for (const SavedTensor& tensor : saved_tensors(model, shape, implementation, unit))
    bytes += tensor.made_by_forward ? tensor.bytes : 0;
  return bytes;
}

// Units of a language model with GEMMs: all but the embedding.
inline constexpr std::array kGemmUnits{Unit::attn, Unit::mlp, Unit::head};
inline constexpr std::array kVisionUnits{Unit::patches, Unit::vision_attn, Unit::vision_mlp, Unit::merger};

// Calls `check` with every model, implementation and shape that tests of all of them use.
template <typename Check>
void for_each_shape(Check check) {
  for (const std::string& name : kModels)
    for (const auto implementation : {Implementation::megatron, Implementation::suite})
      for (const Shape& shape :
           {Shape{2048, 2}, {3072, 2, {.tp = 2}}, {6144, 1, {.tp = 4}}, {8192, 1, {.tp = 8}}})
        check(model(name), implementation, shape);
}

}  // namespace stp
