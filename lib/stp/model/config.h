// A decoder-only transformer, with or without a vision encoder before it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "stp/model/unit.h"

namespace stp {

/// `qwen2`: RMSNorm, rotary grouped-query attention with biases on q, k and v, gated MLP, untied head. `gpt`:
/// GPT-3 as in Megatron-LM: LayerNorm, learned positions, a GELU MLP of two matrices, biases everywhere, and
/// a head that uses the embedding's weights. `vit`: a vision encoder as in Qwen2-VL: LayerNorm, rotary
/// attention without mask, a GELU MLP of two matrices, biases everywhere; never a model by itself.
enum class Family { qwen2, gpt, vit };

enum class Norm : uint8_t { rms, layer, layer_without_bias };
/// `swiglu` is gated: two matrices before it. The others have one. `gelu_tanh`: GELU's approximation by tanh.
enum class Activation : uint8_t { swiglu, gelu, gelu_tanh, squared_relu };
/// The linear layers that have biases.
enum class Biases : uint8_t { none, qkv, all };

/// Where a model differs from its family; without a value: as the family. Only the cost model knows
/// dropout.
struct ModelVariant {
  std::optional<Norm> norm;
  std::optional<Activation> activation;
  std::optional<Biases> biases;
  std::optional<bool> tied;
  double rotary_share = 1;      // of a head's elements that the rotary embedding turns; all are copied
  bool query_key_norm = false;  // RMSNorms of q and k, by heads, before the rotary embedding
  double dropout = 0;           // probability, of each sublayer's output; its mask is kept
  bool operator==(const ModelVariant&) const = default;
};

/// Qwen2-VL's vision encoder, in front of a language model: an embedding of patches, `layers` layers, and a
/// merger. The merger makes one language model token from 2 × 2 encoder tokens, by a LayerNorm and two linear
/// layers.
struct VisionConfig {
  int layers = 0;  // 0: there is no encoder
  int hidden = 0, heads = 0, ffn = 0;
  bool operator==(const VisionConfig&) const = default;
};
inline constexpr int kTokensMerged = 4;                 // the merger makes one token from them
inline constexpr int kPatchElements = 3 * 2 * 14 * 14;  // colours, frames, pixels

struct ModelConfig {
  std::string name;
  int layers, hidden, ffn, q_heads, kv_heads, head_dim, vocab;
  Family family = Family::qwen2;
  int positions = 0;                             // learned position embeddings
  int vocab_multiple = 0;                        // 0: the vocabulary is not padded
  double rope_theta = 1e6, norm_epsilon = 1e-6;  // Qwen2's
  VisionConfig vision;
  ModelVariant variant;
  bool operator==(const ModelConfig&) const = default;

  [[nodiscard]] Norm norm() const {
    return variant.norm.value_or(family == Family::qwen2 ? Norm::rms : Norm::layer);
  }
  [[nodiscard]] Activation activation() const {
    return variant.activation.value_or(family == Family::qwen2 ? Activation::swiglu : Activation::gelu);
  }
  [[nodiscard]] Biases biases() const {
    return variant.biases.value_or(family == Family::qwen2 ? Biases::qkv : Biases::all);
  }
  [[nodiscard]] bool gated() const { return activation() == Activation::swiglu; }
  [[nodiscard]] bool rotary() const { return family != Family::gpt; }
  /// Elements at a head's beginning that rotary embedding turns, rounded as `transformers` rounds.
  [[nodiscard]] int rotary_dim() const { return static_cast<int>(head_dim * variant.rotary_share); }
  [[nodiscard]] bool causal() const { return family != Family::vit; }
  [[nodiscard]] bool has_vision() const { return vision.layers > 0; }
  /// The vision encoder's layers as a model. Only the fields that layers use are set.
  [[nodiscard]] ModelConfig encoder() const;
  [[nodiscard]] bool tied() const { return variant.tied.value_or(family == Family::gpt); }

  /// Parameters of a unit, in one layer; for head and embedding vocabulary_parameters().
  [[nodiscard]] double parameters_of(Unit unit) const;
  [[nodiscard]] double layer_parameters() const;
  /// Parameters of the embedding; the head has as many. If they are tied, a GPU that holds both keeps one
  /// copy. If first and last stage are on different GPUs, each keeps a copy.
  [[nodiscard]] double vocabulary_parameters() const { return double{1} * vocab * hidden; }
  /// Parameters of the learned positions, which tensor parallelism does not divide.
  [[nodiscard]] double position_parameters() const { return double{1} * positions * hidden; }
  /// The vision encoder's parameters: embedding of patches, layers and merger; 0 without an encoder.
  [[nodiscard]] double vision_parameters() const;
  [[nodiscard]] double parameters() const;
};

/// Reads a model file, strictly, or Hugging Face's config.json (hugging_face.h). `path` is its file. Errors
/// name file and field.
ModelConfig read_model(const std::string& path);
/// Reads a configuration from a file's content; messages call the file `file`.
ModelConfig read_model(const nlohmann::json& content, const std::string& file);

/// The model with its vocabulary padded for `tp` ranks: to a multiple of vocab_multiple · tp, as Megatron-LM
/// does.
ModelConfig padded(ModelConfig model, int tp);

/// A small model with the units of `like`, `layers` layers, and dimensions that `ranks` ranks, and pieces and
/// steps of these, divide.
ModelConfig stand_in(const ModelConfig& like, int layers, int ranks);

/// A sequence, and the target token after each of its tokens. With a vision encoder, `patches` has rows of
/// kPatchElements values, of an image. The image's tokens then replace the first tokens, which are not read.
struct TokenSample {
  std::vector<int32_t> tokens, targets;
  std::vector<float> patches = {};
  bool operator==(const TokenSample&) const = default;
};

/// Model FLOPs of one sample of `seq` tokens, forward and backward, causal attention counted once:
/// per token 6·(L·(2·h·q + 2·h·d·kv_heads + 3·h·ffn) + h·vocab) + 6·L·q·s, where q = d·q_heads, mostly h;
/// 2·h·ffn for 3 where the MLP is not gated. A vision encoder of n tokens adds, per token of its own,
/// 6·(L·(4·d² + 2·d·ffn) + 1176·d) + 12·L·d·n and, for the merger, 6·(4·d·4·d + 4·d·h)/4.
double model_flops(const ModelConfig& model, int seq, int vision_tokens = 0);

/// Model FLOPs as the STP paper counts them, recovered from its Tables 6 and 7: KV heads enter as q_heads/8,
/// attention as 24·L·h·s (four times the causal count). Only to compare with its MFU column.
double model_flops_paper(const ModelConfig& model, int seq);

}  // namespace stp
