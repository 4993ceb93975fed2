// A decoder-only transformer of the Qwen2 family: RMSNorm, rotary grouped-query attention, gated MLP, untied
// head.
#pragma once

#include <string>

namespace stp {

struct ModelConfig {
  std::string name;
  int layers, hidden, ffn, q_heads, kv_heads, head_dim, vocab;
  double rope_theta = 1e6, norm_epsilon = 1e-6;  // Qwen2's

  [[nodiscard]] double layer_parameters() const;
  /// Of the embedding, and again of the head (untied).
  [[nodiscard]] double vocabulary_parameters() const { return double{1} * vocab * hidden; }
  [[nodiscard]] double parameters() const;
};

/// Reads a configuration with Hugging Face's field names. Its file is `path`; errors name file and field.
ModelConfig read_model(const std::string& path);

/// Model FLOPs of one sample of `seq` tokens, forward and backward, causal attention counted once:
/// per token 6·(L·(2·h·q + 2·h·d·kv_heads + 3·h·ffn) + h·vocab) + 6·L·q·s, where q = d·q_heads, mostly h.
double model_flops(const ModelConfig& model, int seq);

/// The same as the STP paper counts it, recovered from its Tables 6 and 7: KV heads enter as q_heads/8,
/// attention as 24·L·h·s (four times the causal count). Only to compare with its MFU column.
double model_flops_paper(const ModelConfig& model, int seq);

}  // namespace stp
