// The place of a world rank in the parallel dimensions, as in Megatron-LM: tensor parallel varies fastest,
// then context, data and pipeline parallel.
#pragma once

#include <vector>

namespace stp {

struct RankGrid {
  int tp = 1, cp = 1, dp = 1, pp = 1;

  struct Place {
    int tp, cp, dp, pp;
  };
  [[nodiscard]] int size() const { return tp * cp * dp * pp; }
  [[nodiscard]] int rank(const Place& place) const {
    return ((place.pp * dp + place.dp) * cp + place.cp) * tp + place.tp;
  }
  [[nodiscard]] Place place(int rank) const {
    return {rank % tp, rank / tp % cp, rank / (tp * cp) % dp, rank / (tp * cp * dp)};
  }

  /// The ranks that differ from `rank` only in the tensor-parallel place, `rank` included, in order.
  [[nodiscard]] std::vector<int> tensor_group(int rank) const { return group(rank, {.tp = tp}); }
  /// The ring that shares each sequence: ranks that differ only in the context-parallel place, in order.
  [[nodiscard]] std::vector<int> context_group(int rank) const { return group(rank, {.cp = cp}); }
  /// The ranks that hold the same parameters: they differ only in the context- and data-parallel places.
  [[nodiscard]] std::vector<int> data_group(int rank) const { return group(rank, {.cp = cp, .dp = dp}); }
  /// The ranks that differ only in the pipeline place, in order.
  [[nodiscard]] std::vector<int> pipeline_group(int rank) const { return group(rank, {.pp = pp}); }
  /// The ranks that together hold the model once: they differ only in tp and pp.
  [[nodiscard]] std::vector<int> model_group(int rank) const { return group(rank, {.tp = tp, .pp = pp}); }

 private:
  /// The ranks that differ only in some dimensions: `across` has their sizes, and 1 for the other dimensions.
  [[nodiscard]] std::vector<int> group(int rank, const RankGrid& across) const {
    const Place own = place(rank);
    std::vector<int> members;
    for (int i = 0; i < across.size(); ++i) {
      const Place at = across.place(i);
      members.push_back(this->rank({across.tp > 1 ? at.tp : own.tp, across.cp > 1 ? at.cp : own.cp,
                                    across.dp > 1 ? at.dp : own.dp, across.pp > 1 ? at.pp : own.pp}));
    }
    return members;
  }
};

}  // namespace stp
