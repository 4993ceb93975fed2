// The book that rank 0 keeps of groups that are being founded: who has come, who is waited for, and who can
// never meet. Plain logic; rendezvous.h brings the words of all processes here.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace stp {

/// What a member brings to the founding of a group.
struct Invitation {
  std::string name;
  std::vector<int> members;  // world ranks, in the group's order
  std::string terms;         // must be the same for all members
  std::string text;          // for the others

  /// "group tp of ranks 0, 1"
  [[nodiscard]] std::string group() const;
};

class Meetings {
 public:
  explicit Meetings(int world_size) : world_size_(world_size) {}

  /// `rank` waits from now on for all other members of the same group, and does nothing else meanwhile. With
  /// the last one the meeting is over, and this returns all their texts, in the order of the members. Throws
  /// std::runtime_error that names ranks and groups if the members' terms differ, if one has left, or if some
  /// ranks wait for each other in different groups.
  std::optional<std::vector<std::string>> come(int rank, Invitation invitation);

  /// `rank` comes to no meeting any more. Throws std::runtime_error if one waits for it.
  void leave(int rank);

  /// "rank 0 waits in group tp of ranks 0, 1 for rank 1", all that wait, one after the other; "" if none
  /// does.
  [[nodiscard]] std::string waiting() const;

 private:
  [[nodiscard]] std::vector<int> missing(const Invitation& invitation) const;
  [[nodiscard]] std::string waits(int rank) const;
  void check(int rank, const Invitation& invitation) const;
  void check_circle(int rank) const;

  const int world_size_;
  std::map<int, Invitation> waiting_;  // by rank
  std::vector<int> left_;
};

}  // namespace stp
