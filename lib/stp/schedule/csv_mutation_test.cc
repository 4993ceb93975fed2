// Good CSV files, spoilt at random: each is refused, by a message that names what was spoilt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "support/csv_sheets.h"

namespace stp {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

// Whether `message` names an action of `cell`, or another of the same stage and microbatch: if two conflict,
// either may be named.
bool names_action(const std::string& message, const std::string& cell) {
  static const char* const kAll[] = {"F",      "I",      "W",      "B",           "SEND_F",
                                     "RECV_F", "SEND_B", "RECV_B", "WAIT_SEND_F", "WAIT_SEND_B"};
  const auto parts = parts_of(cell);
  return std::ranges::any_of(parts, [&](const Parts& part) {
    return std::ranges::any_of(
        kAll, [&](const char* type) { return contains(message, part.stage + type + part.microbatch); });
  });
}

class CsvMutation : public testing::Test {
 protected:
  static constexpr int kDraws = 1500;

  // A good file of `form`, of two to four ranks.
  void draw(CsvForm form) {
    const int kind = static_cast<int>(random_() % 3), p = 2 + static_cast<int>(random_() % 3);
    const int m =
        kind == 0 ? 3 * p - 1 + static_cast<int>(random_() % 3) : 1 + static_cast<int>(random_() % 4);
    const Schedule schedule = kind == 0 ? stp_schedule(p, m)
                              : kind == 1
                                  ? in_stage_order(Placement::loop(p, 1 + static_cast<int>(random_() % 3)), m)
                                  : in_stage_order(Placement::wave(p, 3), m);
    grid_ = grid_of(to_csv(schedule, form));
  }

  // A random cell for which `fits` holds; false if the drawn rank has none.
  bool pick(const std::function<bool(const std::string&)>& fits) {
    rank_ = random_() % grid_.size();
    std::vector<size_t> found;
    for (size_t i = 0; i < row().size(); ++i)
      if (fits(row()[i])) found.push_back(i);
    if (found.empty()) return false;
    at_ = found[random_() % found.size()];
    cell_ = row()[at_];
    return true;
  }

  // Draws a good file and one of its cells for which `fits` holds, and has it spoilt, so many times.
  template <typename Spoil>
  void for_each_draw(int draws, const std::vector<CsvForm>& forms,
                     const std::function<bool(const std::string&)>& fits, Spoil spoil) {
    for (int i = 0; i < draws && !HasFatalFailure(); ++i) {
      draw(forms[i % forms.size()]);
      if (pick(fits)) spoil();
    }
  }
  static bool is_action(const std::string& cell) { return !is_reduce(cell); }
  inline static const std::vector<CsvForm> kAllForms{std::begin(kForms), std::end(kForms)};

  std::vector<std::string>& row() { return grid_[rank_]; }
  static auto position(std::vector<std::string>& row, size_t index) {
    return row.begin() + static_cast<ptrdiff_t>(index);
  }
  void erase(size_t index) { row().erase(position(row(), index)); }
  void insert(size_t index, const std::string& cell) { row().insert(position(row(), index), cell); }

  void expect_refused() {
    const std::string message = refusal_of(text_of(grid_));
    ASSERT_NE(message, "") << cell_ << " of rank " << rank_ << ":\n" << text_of(grid_);
    EXPECT_THAT(message, HasSubstr("rank " + std::to_string(rank_))) << cell_ << "\n" << text_of(grid_);
    EXPECT_TRUE(names_action(message, cell_)) << cell_ << ": " << message << "\n" << text_of(grid_);
  }

  std::mt19937 random_{20251027};
  Grid grid_;
  size_t rank_ = 0, at_ = 0;
  std::string cell_;
};

TEST_F(CsvMutation, DroppedActionIsRefused) {
  for_each_draw(kDraws, kAllForms, is_action, [&] {
    erase(at_);
    expect_refused();
  });
}

TEST_F(CsvMutation, DoubledActionIsRefused) {
  for_each_draw(kDraws, kAllForms, is_action, [&] {
    insert(random_() % (row().size() + 1), cell_);
    expect_refused();
  });
}

// What must stand before an action of a stage and microbatch on its own rank.
bool needs(const std::string& type, const std::string& other) {
  if (type == "SEND_F" || type == "I" || type == "B") return other == "F";
  if (type == "WAIT_SEND_F") return other == "SEND_F";
  if (type == "WAIT_SEND_B") return other == "SEND_B";
  if (type == "SEND_B") return other == "I" || other == "B";
  return type == "W" ? other == "I" : type == "F" && other == "RECV_F";
}
// Whether an action of `cell` is of the stage and microbatch of `mine`, and of a type that `fits`.
template <typename Fits>
bool has(const std::string& cell, const Parts& mine, Fits fits) {
  return std::ranges::any_of(parts_of(cell), [&](const Parts& part) {
    return part.stage == mine.stage && part.microbatch == mine.microbatch && fits(part.type);
  });
}

TEST_F(CsvMutation, ActionMovedAcrossItsDependencyIsRefused) {
  int moved = 0;
  for_each_draw(3 * kDraws, kAllForms, is_action, [&] {
    const Parts mine = parts_of(cell_)[0];
    const auto before =
        std::ranges::find_if(row().begin(), row().begin() + at_, [&](const std::string& other) {
          return has(other, mine, [&](const std::string& type) { return needs(mine.type, type); });
        });
    const auto place = static_cast<size_t>(before - row().begin());
    if (place == at_ || cell_[0] == '(') return;
    erase(at_);
    insert(random_() % (place + 1), cell_);
    expect_refused();
    ++moved;
  });
  EXPECT_GT(moved, kDraws);
}

TEST_F(CsvMutation, ReceiveMovedBehindItsConsumerIsRefused) {
  for_each_draw(kDraws, {CsvForm::compute_comms}, is_receive, [&] {
    const Parts mine = parts_of(cell_)[0];
    erase(at_);
    const auto consumer = std::ranges::find_if(row(), [&](const std::string& other) {
      return has(other, mine, [&](const std::string& type) {
        return mine.type == "RECV_F" ? type == "F" : type == "I" || type == "B";
      });
    });
    ASSERT_NE(consumer, row().end());
    const size_t first = static_cast<size_t>(consumer - row().begin()) + 1;
    insert(first + random_() % (row().size() - first + 1), cell_);
    expect_refused();
  });
}

TEST_F(CsvMutation, ActionOnAnotherRankIsRefused) {
  for_each_draw(kDraws, kAllForms, is_action, [&] {
    erase(at_);
    const size_t from = rank_;
    rank_ = (rank_ + 1 + random_() % (grid_.size() - 1)) % grid_.size();
    insert(random_() % (row().size() + 1), cell_);
    const std::string message = refusal_of(text_of(grid_));
    ASSERT_NE(message, "") << cell_ << "\n" << text_of(grid_);
    EXPECT_THAT(message,
                AnyOf(HasSubstr("rank " + std::to_string(from)), HasSubstr("rank " + std::to_string(rank_))));
    // A stage on two ranks is found at any of its actions.
    const bool names_stage = std::ranges::any_of(parts_of(cell_), [&](const Parts& part) {
      return contains(message, "stage " + part.stage + " is on rank");
    });
    EXPECT_TRUE(names_action(message, cell_) || names_stage) << cell_ << ": " << message;
  });
}

// Of one stage and direction, so that the link is the same. Of neighbours only the link's order is wrong.
TEST_F(CsvMutation, SwappedSendsOrReceivesOfALinkAreRefused) {
  int swapped = 0;
  const auto swap = [&] {
    const Parts mine = parts_of(cell_)[0];
    std::vector<size_t> others;
    for (size_t j = 0; j < row().size(); ++j) {
      const Parts other = parts_of(row()[j])[0];
      if (j != at_ && other.stage == mine.stage && other.type == mine.type) others.push_back(j);
    }
    if (others.empty()) return;
    const size_t other = others[random_() % others.size()];
    const std::string partner = row()[other];
    std::swap(row()[at_], row()[other]);
    const std::string message = refusal_of(text_of(grid_));
    ASSERT_NE(message, "") << cell_ << "\n" << text_of(grid_);
    EXPECT_THAT(message, HasSubstr("rank " + std::to_string(rank_)));
    // Swaps show at one of the two, or at a transfer between them.
    EXPECT_TRUE(names_action(message, cell_) || names_action(message, partner) ||
                contains(message, "transfer "))
        << message;
    ++swapped;
  };
  for_each_draw(kDraws, {CsvForm::compute_comms}, is_send, swap);
  for_each_draw(kDraws, {CsvForm::compute_comms}, is_receive, swap);
  EXPECT_GT(swapped, kDraws);
}

TEST_F(CsvMutation, WhatIsAcceptedIsWhatWasWritten) {
  // Any two cells of a rank swapped: refused, or read exactly as it stands.
  int accepted = 0;
  for (int i = 0; i < kDraws; ++i) {
    draw(CsvForm::compute_only);
    rank_ = random_() % grid_.size();
    std::swap(row()[random_() % row().size()], row()[random_() % row().size()]);
    const std::string text = text_of(grid_);
    if (!refusal_of(text).empty()) continue;
    ++accepted;
    EXPECT_EQ(to_csv(schedule_from_csv(text, "x.csv"), CsvForm::compute_only), text);
  }
  EXPECT_GT(accepted, 10);
}

}  // namespace
}  // namespace stp
