#include "stp/cluster/rank_grid.h"

namespace stp {

std::vector<int> RankGrid::group(int rank, const RankGrid& across) const {
  const Place own = place(rank);
  std::vector<int> members;
  for (int i = 0; i < across.size(); ++i) {
    const Place at = across.place(i);
    members.push_back(this->rank({across.tp > 1 ? at.tp : own.tp, across.cp > 1 ? at.cp : own.cp,
                                  across.dp > 1 ? at.dp : own.dp, across.pp > 1 ? at.pp : own.pp}));
  }
  return members;
}

}  // namespace stp
