// The virtual stage of each chunk: a table (rank, chunk) → virtual stage.
#pragma once

#include <string>
#include <vector>

namespace stp {

/// p ranks hold v chunks each. The p·v chunks are the model's virtual stages, in the order of the forward; of
/// a placement with two pipelines those of one model after those of the other.
class Placement {
 public:
  /// Chunk c of rank r is virtual stage c·p + r (Megatron-LM's interleaving; with v = 1 the plain pipeline).
  static Placement loop(int ranks, int chunks);
  /// Two chunks per rank: stage r on the way down, 2p − 1 − r on the way up. Embedding and loss share rank 0.
  static Placement v(int ranks);
  /// Chunks go down and up the ranks in turn: chunk c of rank r is stage c·p + r if c is even, (c + 1)·p − 1
  /// − r if c is odd (Hanayo's waves). With two chunks it is `v`, with one `loop`, and has that name.
  static Placement wave(int ranks, int chunks);
  /// DualPipe's two pipelines, each a model of p virtual stages, against each other: chunk 0 of rank r is
  /// stage r, chunk 1 stage 2p − 1 − r, the (p − 1 − r)-th of the second model. Each has half of the
  /// microbatches. p is even, so that no rank is its own mirror image.
  static Placement bidirectional(int ranks);
  /// Any table, with one row per rank: its chunks' virtual stages. A table that equals a placement above gets
  /// its name (loop if several match, as with one rank); other tables are "table". Throws InputError unless
  /// the rows are equally long and hold every virtual stage once.
  static Placement table(const std::vector<std::vector<int>>& rows);
  /// Returns the placement `name`. Throws InputError if there is none or `ranks` or `chunks` does not fit it.
  static Placement named(const std::string& name, int ranks, int chunks);

  /// "loop", "v", "wave", "bidirectional" or "table".
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] int chunks() const { return chunks_; }
  [[nodiscard]] int stages() const { return ranks_ * chunks_; }
  [[nodiscard]] int stage(int rank, int chunk) const { return stage_[rank * chunks_ + chunk]; }
  /// Pipelines, each with a model of its own, and their virtual stages.
  [[nodiscard]] int pipelines() const { return pipelines_; }
  [[nodiscard]] int depth() const { return stages() / pipelines_; }
  [[nodiscard]] bool is_first(int stage) const { return stage % depth() == 0; }
  [[nodiscard]] bool is_last(int stage) const { return (stage + 1) % depth() == 0; }
  [[nodiscard]] int rank_of(int stage) const { return place_[stage] / chunks_; }
  [[nodiscard]] int chunk_of(int stage) const { return place_[stage] % chunks_; }
  /// Compares the tables, not the names.
  bool operator==(const Placement& other) const {
    return ranks_ == other.ranks_ && chunks_ == other.chunks_ && pipelines_ == other.pipelines_ &&
           stage_ == other.stage_;
  }

 private:
  template <typename StageOf>
  Placement(std::string name, int ranks, int chunks, StageOf stage_of);

  std::string name_;
  int ranks_, chunks_, pipelines_ = 1;
  std::vector<int> stage_;  // by rank · chunks + chunk
  std::vector<int> place_;  // its inverse
};

}  // namespace stp
