#include "stp/processes/meetings.h"

#include <algorithm>
#include <functional>
#include <set>
#include <stdexcept>
#include <utility>

namespace stp {
namespace {

bool same_group(const Invitation& a, const Invitation& b) {
  return a.name == b.name && a.members == b.members;
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? " " : ", ") + std::to_string(ranks[i]);
  return text;
}

std::string name_of(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

std::string Invitation::group() const { return "group " + name + " of " + ranks_text(members); }

std::vector<int> Meetings::missing(const Invitation& invitation) const {
  std::vector<int> ranks;
  for (const int member : invitation.members) {
    const auto found = waiting_.find(member);
    if (found == waiting_.end() || !same_group(found->second, invitation)) ranks.push_back(member);
  }
  return ranks;
}

std::string Meetings::waits(int rank) const {
  const Invitation& invitation = waiting_.at(rank);
  return name_of(rank) + " waits in " + invitation.group() + " for " + ranks_text(missing(invitation));
}

std::string Meetings::waiting() const {
  std::string text;
  for (const auto& [rank, invitation] : waiting_) text += (text.empty() ? "" : "; ") + waits(rank);
  return text;
}

void Meetings::check(int rank, const Invitation& invitation) const {
  if (waiting_.count(rank) > 0)
    throw std::runtime_error(waits(rank) + ", and asks for " + invitation.group() + " meanwhile");
  const std::set<int> distinct(invitation.members.begin(), invitation.members.end());
  if (distinct.size() != invitation.members.size() || distinct.count(rank) == 0 || *distinct.begin() < 0 ||
      *distinct.rbegin() >= world_size_)
    throw std::runtime_error(name_of(rank) + " asks for " + invitation.group() +
                             ", which is no group of different ranks below " + std::to_string(world_size_) +
                             " with itself among them");
  for (const auto& [other, theirs] : waiting_)
    if (same_group(theirs, invitation) && theirs.terms != invitation.terms)
      throw std::runtime_error(invitation.group() + ": its members differ: " + name_of(other) + " has " +
                               theirs.terms + ", " + name_of(rank) + " has " + invitation.terms);
}

// Each waits for all its missing members; who waits in a circle waits for ever.
void Meetings::check_circle(int rank) const {
  std::set<int> seen;
  std::vector<int> path;
  const std::function<bool(int)> leads_back = [&](int from) {
    path.push_back(from);
    for (const int next : missing(waiting_.at(from))) {
      if (next == rank) return true;
      if (waiting_.count(next) > 0 && seen.insert(next).second && leads_back(next)) return true;
    }
    path.pop_back();
    return false;
  };
  if (!leads_back(rank)) return;
  std::string text = "ranks ask for their groups in different orders: ";
  for (size_t i = 0; i < path.size(); ++i) text += (i == 0 ? "" : "; ") + waits(path[i]);
  throw std::runtime_error(text);
}

std::optional<std::vector<std::string>> Meetings::come(int rank, Invitation invitation) {
  check(rank, invitation);
  waiting_.emplace(rank, invitation);
  const std::vector<int> absent = missing(invitation);
  if (absent.empty()) {
    std::vector<std::string> texts;
    for (const int member : invitation.members) {
      texts.push_back(std::move(waiting_.at(member).text));
      waiting_.erase(member);
    }
    return texts;
  }
  for (const int member : absent)
    if (contains(left_, member))
      throw std::runtime_error(waits(rank) + ", but " + name_of(member) + " has ended");
  check_circle(rank);
  return std::nullopt;
}

void Meetings::leave(int rank) {
  left_.push_back(rank);
  for (const auto& [other, invitation] : waiting_)
    if (contains(invitation.members, rank))
      throw std::runtime_error(waits(other) + ", but " + name_of(rank) + " has ended");
}

}  // namespace stp
