#include "stp/schedule/csv.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>

#include "stp/base/error.h"
#include "stp/schedule/csv_cells.h"
#include "stp/schedule/pipeline_state.h"
#include "stp/schedule/timing.h"
#include "stp/schedule/vocabulary.h"

namespace stp {
namespace {

using namespace csv;

// A tensor between stages: `from`'s activation to from + 1, or, backward, its input's gradient to from − 1.
struct StageTensor {
  bool backward;
  int from, microbatch;
  [[nodiscard]] int to() const { return backward ? from - 1 : from + 1; }
  [[nodiscard]] Leaf send() const { return {from, backward ? Type::SEND_B : Type::SEND_F, microbatch}; }
  [[nodiscard]] Leaf receive() const { return {to(), backward ? Type::RECV_B : Type::RECV_F, microbatch}; }
};

// What stage `from` makes of a microbatch for the next stage; none if that is on its rank or does not exist.
std::optional<StageTensor> hand_over(const Placement& placement, bool backward, int from, int microbatch) {
  const StageTensor tensor{backward, from, microbatch};
  if (from < 0 || from >= placement.stages() || tensor.to() < 0 || tensor.to() >= placement.stages())
    return {};
  if (placement.rank_of(from) == placement.rank_of(tensor.to())) return {};
  return tensor;
}
std::optional<StageTensor> output_of(const Placement& placement, const Leaf& leaf) {
  if (leaf.type == Type::W) return {};
  return hand_over(placement, leaf.type != Type::F, leaf.stage, leaf.microbatch);
}
std::optional<StageTensor> input_of(const Placement& placement, const Leaf& leaf) {
  if (leaf.type == Type::W) return {};
  const bool backward = leaf.type != Type::F;
  return hand_over(placement, backward, backward ? leaf.stage + 1 : leaf.stage - 1, leaf.microbatch);
}

// ---- writing ----

Leaf leaf_of(const Placement& placement, int rank, const Action& action) {
  return {placement.stage(rank, action.chunk), static_cast<Type>(action.pass), action.microbatch};
}

std::string to_cell(const Placement& placement, int rank, const Block& block) {
  const Leaf first = leaf_of(placement, rank, block.actions()[0]);
  return block.braided() ? to_overlap(first, leaf_of(placement, rank, block.actions()[1])) : to_string(first);
}

// A tensor that one rank sends another.
struct Transfer {
  StageTensor tensor;
  std::pair<double, int> sent;  // time, with F, I and W taking 1 and B 2, and rank, which breaks ties
  size_t made, needed;          // positions of the blocks that make and need it
};

// By receiver and sender, the transfers of a link in the order of its sends.
using Links = std::map<std::pair<int, int>, std::vector<Transfer>>;

template <typename Visit>
void for_each_leaf(const Schedule& schedule, const Visit& visit) {
  for (int rank = 0; rank < schedule.pp(); ++rank)
    for (size_t position = 0; position < schedule.ranks[rank].size(); ++position)
      for (const Action& action : schedule.ranks[rank][position].actions())
        visit(rank, position, leaf_of(schedule.placement, rank, action));
}

Links find_links(const Schedule& schedule) {
  const Placement& placement = schedule.placement;
  const int m = schedule.microbatches;
  const Timing timing = time_blocks(schedule);
  const auto index = [&](const Leaf& leaf) {
    const int hop = hop_of(placement.stages(), leaf.stage, leaf.type != Type::F);
    return static_cast<size_t>(hop) * m + leaf.microbatch;
  };
  std::vector<size_t> positions(2 * static_cast<size_t>(placement.stages()) * m);  // by hop and microbatch
  for_each_leaf(schedule, [&](int /*rank*/, size_t position, const Leaf& leaf) {
    if (leaf.type != Type::W) positions[index(leaf)] = position;
  });
  Links links;
  for_each_leaf(schedule, [&](int rank, size_t position, const Leaf& leaf) {
    const auto tensor = output_of(placement, leaf);
    if (!tensor) return;
    const size_t needed = positions[index(leaf) + m];  // by the next hop
    links[{placement.rank_of(tensor->to()), rank}].push_back(
        {*tensor, {timing[rank][position].end, rank}, position, needed});
  });
  return links;
}

// A receive, and the block that it precedes.
using Receive = std::pair<size_t, Leaf>;

// The receives of `transfers`, in their order. Each precedes the block that needs it and the later sends of
// its rank (`back`); so do all receives before it.
std::vector<Receive> receives_of(const std::vector<Transfer>& transfers, const std::vector<Transfer>& back) {
  std::vector<Receive> receives;
  size_t position = std::numeric_limits<size_t>::max(), later = back.size();
  for (size_t i = transfers.size(); i-- > 0;) {
    while (later > 0 && back[later - 1].sent > transfers[i].sent) --later;
    position = std::min(position, transfers[i].needed);
    if (later < back.size()) position = std::min(position, back[later].made);
    receives.emplace_back(position, transfers[i].tensor.receive());
  }
  std::ranges::reverse(receives);
  return receives;
}

// By rank, its receives in order.
std::vector<std::vector<Receive>> place_receives(const Schedule& schedule) {
  const Links links = find_links(schedule);
  const std::vector<Transfer> none;
  std::vector<std::vector<Receive>> receives(schedule.pp());
  for (const auto& [link, transfers] : links) {
    const auto [receiver, sender] = link;
    const auto back = links.find({sender, receiver});
    const auto more = receives_of(transfers, back == links.end() ? none : back->second);
    receives[receiver].insert(receives[receiver].end(), more.begin(), more.end());
  }
  for (auto& of_rank : receives) std::ranges::stable_sort(of_rank, {}, &Receive::first);
  return receives;
}

// ---- reading ----

// Finds the placement and the number of microbatches.
Placement find_placement(const std::vector<Row>& rows, int& microbatches) {
  struct First {
    size_t rank;
    const Cell* cell = nullptr;
  };
  std::vector<First> first;
  microbatches = 0;
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    for (const Cell& cell : rows[rank]) {
      for (uint32_t part = 0; part < cell.size; ++part) {
        const Leaf& leaf = cell.leaves[part];
        if (!is_compute(leaf.type)) continue;
        microbatches = std::max(microbatches, leaf.microbatch + 1);
        if (first.size() <= static_cast<size_t>(leaf.stage)) first.resize(leaf.stage + 1);
        First& of_stage = first[leaf.stage];
        if (of_stage.cell == nullptr) of_stage = {rank, &cell};
        if (of_stage.rank != rank)
          refuse(place_of(rank, cell),
                 "stage " + std::to_string(leaf.stage) + " is on rank " + std::to_string(of_stage.rank) +
                     " already (" + place_of(of_stage.rank, *of_stage.cell) + ")",
                 "do all passes of a stage on one rank");
      }
    }
  }
  std::vector<std::vector<int>> stages(rows.size());
  for (size_t stage = 0; stage < first.size(); ++stage) {
    if (first[stage].cell == nullptr)
      refuse("stage " + std::to_string(stage),
             "is in no row, but stage " + std::to_string(first.size() - 1) + " is (" +
                 place_of(first.back().rank, *first.back().cell) + ")",
             "number the stages from 0 without gaps");
    stages[first[stage].rank].push_back(static_cast<int>(stage));
  }
  for (size_t rank = 0; rank < stages.size(); ++rank)
    if (stages[rank].size() != stages[0].size())
      refuse(place_of(rank),
             "has " + counted(stages[rank].size(), "stage") + ", and rank 0 has " +
                 std::to_string(stages[0].size()),
             "give every rank the same number of stages");
  check_size(static_cast<int>(rows.size()), static_cast<int>(stages[0].size()), microbatches);
  return Placement::table(stages);
}

// A tensor on one side of its link.
struct Post {
  StageTensor tensor;
  size_t column;
};
using Posts = std::vector<Post>;

// Types seen of a stage and a microbatch: a bit per type.
constexpr uint32_t bit(Type type) { return 1U << static_cast<int>(type); }
constexpr uint32_t kBackward = bit(Type::I) | bit(Type::B);

class SheetReader {
 public:
  SheetReader(const Sheet& sheet, Schedule& schedule)
      : sheet_(sheet), schedule_(schedule), comms_(sheet.form == CsvForm::compute_comms) {}

  void read() {
    const auto waits = [](const Cell& cell) { return is_wait_send(cell.leaves[0].type); };
    waits_ = std::any_of(sheet_.rows.begin(), sheet_.rows.end(),
                         [&](const Row& row) { return std::any_of(row.begin(), row.end(), waits); });
    for (rank_ = 0; rank_ < schedule_.pp(); ++rank_) {
      seen_.assign(static_cast<size_t>(schedule_.chunks()) * schedule_.microbatches, 0);
      for (const Cell& cell : sheet_.rows[rank_]) read_cell(cell);
      if (comms_) check_all_sent();
    }
    for (const auto& [link, posts] : links_) check_link(link.first, link.second, posts);
  }

 private:
  [[nodiscard]] const Placement& placement() const { return schedule_.placement; }

  // For a stage of this rank.
  uint32_t& seen(const Leaf& leaf) {
    return seen_[static_cast<size_t>(placement().chunk_of(leaf.stage)) * schedule_.microbatches +
                 leaf.microbatch];
  }

  void read_cell(const Cell& cell) {
    if (is_compute(cell.leaves[0].type)) {
      std::array<Action, 2> actions;
      for (uint32_t part = 0; part < cell.size; ++part) actions[part] = compute(cell, cell.leaves[part]);
      auto& blocks = schedule_.ranks[rank_];
      if (cell.braided())
        blocks.emplace_back(actions[0], actions[1]);
      else
        blocks.emplace_back(actions[0]);
    } else {
      communicate(cell, cell.leaves[0]);
    }
  }

  Action compute(const Cell& cell, const Leaf& leaf) {
    const auto fail = [&](const std::string& problem, const std::string& remedy) {
      refuse(place_of(rank_, cell), (cell.braided() ? to_string(leaf) + " " : "") + problem, remedy);
    };
    if (comms_ && is_of_vocabulary(leaf.type))
      fail("is of the vocabulary, which has no compute_comms", "leave out the communication");
    uint32_t& passes = seen(leaf);
    const auto input = comms_ ? input_of(placement(), leaf) : std::nullopt;
    if (input && (passes & bit(input->receive().type)) == 0)
      fail("has no " + to_string(input->receive()) + " before it, but stage " + std::to_string(input->from) +
               " is on rank " + std::to_string(placement().rank_of(input->from)),
           "receive before use");
    passes |= bit(leaf.type);
    const int chunk = is_of_vocabulary(leaf.type) ? 0 : placement().chunk_of(leaf.stage);
    return {static_cast<Pass>(leaf.type), static_cast<int16_t>(chunk), leaf.microbatch};
  }

  void communicate(const Cell& cell, const Leaf& leaf) {
    const auto fail = [&](const std::string& problem, const std::string& remedy) {
      refuse(place_of(rank_, cell), problem, remedy);
    };
    if (leaf.stage >= placement().stages())
      fail("there is no stage " + std::to_string(leaf.stage),
           "use stages below " + std::to_string(placement().stages()));
    if (placement().rank_of(leaf.stage) != rank_)
      fail("stage " + std::to_string(leaf.stage) + " is on rank " +
               std::to_string(placement().rank_of(leaf.stage)),
           "move it to that rank");
    if (!has_microbatch(leaf.type)) return;
    if (leaf.microbatch >= schedule_.microbatches)
      fail("there is no microbatch " + std::to_string(leaf.microbatch),
           "use those that are computed, below " + std::to_string(schedule_.microbatches));
    const bool send = is_send(leaf.type), wait = is_wait_send(leaf.type),
               backward = is_backward_side(leaf.type);
    const int from = send || wait ? leaf.stage : leaf.stage + (backward ? 1 : -1);
    const auto tensor = hand_over(placement(), backward, from, leaf.microbatch);
    if (!tensor)
      fail("has no other rank to exchange with: its stage's neighbour is on this rank or does not exist",
           "remove it");
    uint32_t& passes = seen(leaf);
    if ((passes & bit(leaf.type)) != 0) fail("appears a second time", "remove one of them");
    if (wait) {
      if ((passes & bit(tensor->send().type)) == 0)
        fail("precedes its " + to_string(tensor->send()), "move it after");
      passes |= bit(leaf.type);
      return;
    }
    const bool computed = (passes & (backward ? kBackward : bit(Type::F))) != 0;
    if (send && !computed)
      fail("precedes the action that makes its tensor, " + action_name(backward, leaf), "send after it");
    if (!send && computed)
      fail("follows the action that needs its tensor, " + action_name(backward, leaf), "receive before it");
    passes |= bit(leaf.type);
    const int sender = placement().rank_of(tensor->from), receiver = placement().rank_of(tensor->to());
    links_[{sender, receiver}][send ? 0 : 1].push_back({*tensor, cell.column});
  }

  static std::string action_name(bool backward, const Leaf& leaf) {
    return std::to_string(leaf.stage) + (backward ? "B" : "F") + std::to_string(leaf.microbatch) +
           (backward ? " or " + std::to_string(leaf.stage) + "I" + std::to_string(leaf.microbatch) : "");
  }

  void check_all_sent() {
    for (int chunk = 0; chunk < schedule_.chunks(); ++chunk) {
      for (int microbatch = 0; microbatch < schedule_.microbatches; ++microbatch) {
        const int stage = placement().stage(rank_, chunk);
        const uint32_t passes = seen({stage, Type::F, microbatch});
        const auto missing = [&](const Leaf& leaf, const std::string& remedy) {
          refuse(place_of(rank_), to_string(leaf) + " is missing", remedy);
        };
        for (const bool backward : {false, true}) {
          const auto tensor = hand_over(placement(), backward, stage, microbatch);
          if (tensor && (passes & bit(tensor->send().type)) == 0)
            missing(tensor->send(), "send what stage " + std::to_string(tensor->to()) + " on rank " +
                                        std::to_string(placement().rank_of(tensor->to())) + " needs");
          const Leaf wait{stage, backward ? Type::WAIT_SEND_B : Type::WAIT_SEND_F, microbatch};
          if (tensor && waits_ && (passes & bit(wait.type)) == 0)
            missing(wait, "wait for every send, or for none if torch adds the waits itself");
        }
      }
    }
  }

  // Tensors have no names: the k-th sent tensor is the k-th received tensor.
  static void check_link(int sender, int receiver, const std::array<Posts, 2>& posts) {
    const auto& [sends, receives] = posts;
    for (size_t k = 0; k < std::min(sends.size(), receives.size()); ++k) {
      const StageTensor &sent = sends[k].tensor, &received = receives[k].tensor;
      if (sent.backward == received.backward && sent.from == received.from &&
          sent.microbatch == received.microbatch)
        continue;
      refuse("ranks " + std::to_string(sender) + " and " + std::to_string(receiver) + ", transfer " +
                 std::to_string(k + 1),
             "rank " + std::to_string(sender) + " sends " + to_string(sent.send()) + " (cell " +
                 std::to_string(sends[k].column) + ") while rank " + std::to_string(receiver) + " receives " +
                 to_string(received.receive()) + " (cell " + std::to_string(receives[k].column) +
                 "): neighbours that disagree on the order swap tensors silently",
             "put the receives of a link in the order of its sends");
    }
  }

  const Sheet& sheet_;
  Schedule& schedule_;
  const bool comms_;
  bool waits_ = false;  // the file has waits for sends
  int rank_ = 0;
  std::vector<uint32_t> seen_;
  std::map<std::pair<int, int>, std::array<Posts, 2>> links_;  // by sender and receiver: sends, receives
};

}  // namespace

std::string to_csv(const Schedule& schedule, CsvForm form) {
  if (schedule.placement.pipelines() > 1)
    throw InputError("", "placement", "has two pipelines, and a sheet has one", "write JSON or text");
  const bool comms = form != CsvForm::compute_only, waits = form == CsvForm::compute_comms_waits;
  const Placement& placement = schedule.placement;
  std::vector<std::vector<Receive>> receives(schedule.pp());
  if (comms && vocabulary_of(schedule) != Vocabulary::whole)
    throw InputError("", "format", "is compute_comms, and torch has no passes of the vocabulary",
                     "write csv, which our own reader takes");
  if (comms) receives = place_receives(schedule);
  std::string text;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    const char* separator = "";
    const auto write = [&](const std::string& cell) {
      text += separator + cell;
      separator = ",";
    };
    std::vector<int> left(schedule.chunks(),
                          schedule.microbatches);  // until a chunk's gradients are complete
    std::vector<Leaf> waits_at_end;
    size_t received = 0;
    for (size_t position = 0; position < schedule.ranks[rank].size(); ++position) {
      const Block& block = schedule.ranks[rank][position];
      for (; received < receives[rank].size() && receives[rank][received].first == position; ++received)
        write(to_string(receives[rank][received].second));
      write(to_cell(placement, rank, block));
      if (!comms) continue;
      for (const Action& action : block.actions()) {
        const auto tensor = output_of(placement, leaf_of(placement, rank, action));
        if (!tensor) continue;
        write(to_string(tensor->send()));
        if (waits && tensor->backward)
          waits_at_end.push_back({tensor->from, Type::WAIT_SEND_B, tensor->microbatch});
      }
      for (const Action& action : block.actions()) {
        const int stage = placement.stage(rank, action.chunk);
        if (waits && is_backward(action.pass) && hand_over(placement, false, stage, action.microbatch))
          write(to_string(Leaf{stage, Type::WAIT_SEND_F, action.microbatch}));
        if (!ends_life(action.pass) || --left[action.chunk] > 0) continue;
        write(to_string(Leaf{stage, Type::REDUCE_GRAD, 0}));
        if (waits) write(to_string(Leaf{stage, Type::WAIT_REDUCE_GRAD, 0}));
      }
    }
    for (const Leaf& wait : waits_at_end) write(to_string(wait));
    text += "\r\n";
  }
  return text;
}

Schedule schedule_from_csv(const std::string& text, const std::string& file) {
  try {
    const Sheet sheet = read_cells(text);
    int microbatches = 0;
    const Placement placement = find_placement(sheet.rows, microbatches);
    Schedule schedule{schedule_name_of(file), placement, microbatches, {}};
    schedule.ranks.resize(schedule.pp());
    SheetReader(sheet, schedule).read();
    return schedule;
  } catch (const InputError& error) {
    throw error.in_file(file);
  }
}

PlaceOfAction places_in_csv(const std::string& text, const Placement& placement) {
  // Reads the cells again at the first call: most files have no error.
  return [sheet = std::optional<Sheet>(), &text, placement](int rank, size_t block,
                                                            const Action& action) mutable {
    if (!sheet) {
      sheet = read_cells(text);
      for (Row& row : sheet->rows)
        std::erase_if(row, [](const Cell& cell) { return !is_compute(cell.leaves[0].type); });
    }
    const std::string name = to_string(leaf_of(placement, rank, action));
    if (block == kNoBlock) return place_of(rank) + ", " + name;
    Cell cell = sheet->rows[rank][block];
    cell.text = name;  // of an overlap, only the action
    return place_of(rank, cell);
  };
}

}  // namespace stp
