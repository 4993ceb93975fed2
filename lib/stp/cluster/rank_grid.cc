#include "stp/cluster/rank_grid.h"

namespace stp {

std::vector<int> RankGrid::tensor_group(int rank) const {
  std::vector<int> group;
  Place at = place(rank);
  for (at.tp = 0; at.tp < tp; ++at.tp) group.push_back(this->rank(at));
  return group;
}

std::vector<int> RankGrid::context_group(int rank) const {
  std::vector<int> group;
  Place at = place(rank);
  for (at.cp = 0; at.cp < cp; ++at.cp) group.push_back(this->rank(at));
  return group;
}

std::vector<int> RankGrid::data_group(int rank) const {
  std::vector<int> group;
  Place at = place(rank);
  for (at.dp = 0; at.dp < dp; ++at.dp)
    for (at.cp = 0; at.cp < cp; ++at.cp) group.push_back(this->rank(at));
  return group;
}

std::vector<int> RankGrid::model_group(int rank) const {
  std::vector<int> group;
  Place at = place(rank);
  for (at.pp = 0; at.pp < pp; ++at.pp)
    for (at.tp = 0; at.tp < tp; ++at.tp) group.push_back(this->rank(at));
  return group;
}

}  // namespace stp
