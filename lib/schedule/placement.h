// Which piece of the model lies where: a table (rank, chunk) → virtual stage.
#pragma once

#include <string>
#include <vector>

namespace stp {

/// p ranks hold v chunks each; together they are the p·v virtual stages of the model, in order of the forward.
class Placement {
 public:
  /// Chunk c of rank r is virtual stage c·p + r (Megatron-LM's interleaving; with v = 1 the plain pipeline).
  static Placement loop(int ranks, int chunks);
  /// Two chunks: r on the way down, 2p − 1 − r on the way back up. Embedding and loss share rank 0.
  static Placement v(int ranks);
  /// The placement of that name; InputError if there is none or `chunks` does not fit it.
  static Placement named(const std::string& name, int ranks, int chunks);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] int chunks() const { return chunks_; }
  [[nodiscard]] int stages() const { return ranks_ * chunks_; }
  [[nodiscard]] int stage(int rank, int chunk) const { return stage_[rank * chunks_ + chunk]; }
  [[nodiscard]] int rank_of(int stage) const { return place_[stage] / chunks_; }
  [[nodiscard]] int chunk_of(int stage) const { return place_[stage] % chunks_; }

 private:
  template <typename StageOf>
  Placement(std::string name, int ranks, int chunks, StageOf stage_of);

  std::string name_;
  int ranks_, chunks_;
  std::vector<int> stage_;  // by rank · chunks + chunk
  std::vector<int> place_;  // its inverse
};

}  // namespace stp
