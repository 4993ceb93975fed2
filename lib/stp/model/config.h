// A decoder-only transformer, with or without a vision encoder before it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "stp/model/unit.h"

namespace stp {

/// `qwen2`: RMSNorm, rotary grouped-query attention with biases on q, k and v, gated MLP, untied head. `gpt`:
/// GPT-3 as in Megatron-LM: LayerNorm, learned positions, a GELU MLP of two matrices, biases everywhere, and
/// a head that uses the embedding's weights. `vit`: a vision encoder as in Qwen2-VL: LayerNorm, rotary
/// attention without mask, a GELU MLP of two matrices, biases everywhere; never a model by itself.
enum class Family { qwen2, gpt, vit };

/// Qwen2-VL's vision encoder, in front of a language model: an embedding of patches, `layers` layers, and a
/// merger. The merger makes one language model token from 2 × 2 encoder tokens, by a LayerNorm and two linear
/// layers.
struct VisionConfig {
  int layers = 0;  // 0: there is no encoder
  int hidden = 0, heads = 0, ffn = 0;
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

  [[nodiscard]] bool gated() const { return family == Family::qwen2; }
  [[nodiscard]] bool rotary() const { return family != Family::gpt; }
  [[nodiscard]] bool causal() const { return family != Family::vit; }
  [[nodiscard]] bool has_vision() const { return vision.layers > 0; }
  /// The vision encoder's layers as a model. Only the fields that layers use are set.
  [[nodiscard]] ModelConfig encoder() const;
  [[nodiscard]] bool tied() const { return family == Family::gpt; }

  /// Parameters of a unit, in one layer; for head and embedding vocabulary_parameters().
  [[nodiscard]] double parameters_of(Unit unit) const;
  [[nodiscard]] double layer_parameters() const;
  /// Parameters of the embedding; the head has as many. If they are tied, a GPU that holds both keeps one
  /// copy. If first and last stage are on different GPUs, each keeps a copy.
  [[nodiscard]] double vocabulary_parameters() const { return double{1} * vocab * hidden; }
  /// The vision encoder's parameters: embedding of patches, layers and merger; 0 without an encoder.
  [[nodiscard]] double vision_parameters() const;
  [[nodiscard]] double parameters() const;
};

/// Reads a configuration with Hugging Face's field names; `model_type` is qwen2 or megatron-gpt. `path` is
/// its file. Errors name file and field.
ModelConfig read_model(const std::string& path);
/// Reads a configuration from a file's content; messages call the file `file`.
ModelConfig read_model(const nlohmann::json& content, const std::string& file);

/// The model with its vocabulary padded for `tp` ranks: to a multiple of vocab_multiple · tp, as Megatron-LM
/// does.
ModelConfig padded(ModelConfig model, int tp);

/// Whether `vision_tokens` tokens of an image merge into whole tokens, at most `seq`.
bool vision_tokens_fit(int vision_tokens, int seq);

/// Model FLOPs of one sample of `seq` tokens, forward and backward, causal attention counted once:
/// per token 6·(L·(2·h·q + 2·h·d·kv_heads + 3·h·ffn) + h·vocab) + 6·L·q·s, where q = d·q_heads, mostly h;
/// 2·h·ffn for 3 where the MLP is not gated. A vision encoder of n tokens adds, per token of its own,
/// 6·(L·(4·d² + 2·d·ffn) + 1176·d) + 12·L·d·n and, for the merger, 6·(4·d·4·d + 4·d·h)/4.
double model_flops(const ModelConfig& model, int seq, int vision_tokens = 0);

/// Model FLOPs as the STP paper counts them, recovered from its Tables 6 and 7: KV heads enter as q_heads/8,
/// attention as 24·L·h·s (four times the causal count). Only to compare with its MFU column.
double model_flops_paper(const ModelConfig& model, int seq);

}  // namespace stp
