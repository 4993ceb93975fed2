// Set-up before the first step: the plan, and the ranks, groups and links of this process.
#include "stp/runtime/executor.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "stp/base/error.h"
#include "stp/runtime/gemm_calls.h"

namespace stp {
namespace {

// The ops that bring the norm's total back wait for no other op, so they come first. All processes then issue
// the same ops before they check the norm. The head is not among these ops, since it fails the run if the
// weights are not finite.
void plan_check(ExecutionPlan& plan) {
  std::vector<OpId>& order = plan.order.ops;
  const auto kind = [&](OpId op) { return plan.program.ops[op].kind; };
  const auto others = std::stable_partition(order.begin(), order.end(),
                                            [&](OpId op) { return kind(op) == OpKind::norm_total; });
  plan.totals.assign(order.begin(), others);
  const auto behind = std::find_if(others, order.end(), [&](OpId id) {
    const Op& op = plan.program.ops[id];
    const bool warms_up = op.block >= 0 && op.pass == Pass::F && op.chunk == 0 && op.unit != Unit::head;
    return kind(id) != OpKind::weight_gather && !warms_up;
  });
  plan.issued_before_check = behind - order.begin();
}

}  // namespace

ExecutionPlan make_plan(Program program) {
  IssueOrder order = issue_order(program);  // refuses a program that would deadlock
  ExecutionPlan plan{std::move(program), std::move(order), {}, {}};
  if (plan.program.strategy.post_validation) plan_check(plan);
  int layer = 0;
  for (const int layers : plan.program.layers_per_stage) {
    if (plan.program.schedule.placement.is_first(static_cast<int>(plan.first_layer.size()))) layer = 0;
    plan.first_layer.push_back(layer);
    layer += layers;
  }
  plan.number_on_link.resize(plan.program.ops.size());
  std::vector<uint32_t> on_link(plan.program.streams.size(), 0);
  for (OpId op = 0; op < plan.program.ops.size(); ++op)
    if (plan.program.ops[op].kind == OpKind::transfer)
      plan.number_on_link[op] = on_link[plan.program.on_stream[op]]++;
  plan.sent_before = sent_before(plan.program, plan.order.ops);
  return plan;
}

Executor::Executor(Backend& backend, const ExecutionPlan& plan, const Training& training)
    : backend_(backend),
      plan_(plan),
      training_(training),
      encoder_training_(training.of_encoder()),
      grid_(plan.program.strategy.grid()) {
  const Shape shape{.seq = training.seq,
                    .microbatch_size = training.microbatch_size,
                    .strategy = plan.program.strategy,
                    .element_bytes = static_cast<int>(bytes_of(training.type)),
                    .vision_tokens = training.vision_tokens,
                    .shares_vocabulary = plan.program.vocabulary != Vocabulary::whole};
  for (const int layers : plan.program.layers_per_stage)
    offloaded_.push_back(offloaded_tensors(training.model, shape, Implementation::suite, layers,
                                           plan.program.strategy.offload));
  make_ranks();
  for (const auto& rank : ranks_) prepare_gemms(*rank, shape);
  make_groups();
  make_links();
  for (const auto& rank : ranks_) rank->device.synchronize();
}

Executor::~Executor() {
  for (const auto& rank : ranks_)
    for (ChunkState& chunk : rank->chunks) release_chunk(rank->device, *rank->compute, chunk);
}

RankState* Executor::local(int world_rank) const {
  const auto found = std::find_if(ranks_.begin(), ranks_.end(),
                                  [&](const auto& rank) { return rank->world_rank == world_rank; });
  return found == ranks_.end() ? nullptr : found->get();
}

std::vector<RankState*> Executor::ranks_of(int pp) const {
  std::vector<RankState*> ranks;
  for (const auto& rank : ranks_)
    if (rank->place.pp == pp) ranks.push_back(rank.get());
  return ranks;
}

void Executor::make_ranks() {
  const Program& program = plan_.program;
  const Placement& placement = program.schedule.placement;
  for (const int world_rank : backend_.ranks()) {
    Device& device = backend_.device(world_rank);
    ranks_.push_back(std::make_unique<RankState>(RankState{world_rank, grid_.place(world_rank), device}));
    RankState& rank = *ranks_.back();
    issuing_ = &rank;
    const auto make = [&](const char* name, StreamPriority priority) {
      return device.make_stream(name, priority);
    };
    rank.compute = make("compute", StreamPriority::compute);
    if (grid_.tp > 1) rank.tp = make("tp", StreamPriority::communication);
    if (grid_.cp > 1) rank.cp = make("cp", StreamPriority::communication);
    if (grid_.cp * grid_.dp * placement.pipelines() > 1 || reduces_embedding())
      rank.dp = make("dp", StreamPriority::communication);
    if (program.strategy.sequence_parallel) rank.gather = make("gather", StreamPriority::communication);
    if (program.strategy.offload > 0) {
      rank.d2h = make("d2h", StreamPriority::communication);
      rank.h2d = make("h2d", StreamPriority::communication);
    }
    for (uint32_t stream = 0; stream < program.streams.size(); ++stream)
      if (program.streams[stream].kind == StreamKind::vocabulary)
        rank.vocabulary[stream] = make("vocabulary", StreamPriority::communication);
    rank.context.emplace(
        UnitContext{device, *rank.compute, training_, rank.place.tp, rank.place.cp, program.strategy});
    rank.encoder.emplace(UnitContext{device, *rank.compute, encoder_training_, rank.place.tp, rank.place.cp,
                                     program.strategy});
    try {
      for (int chunk = 0; chunk < placement.chunks(); ++chunk) {
        const int stage = placement.stage(rank.place.pp, chunk);
        rank.chunks.push_back(make_chunk(
            backend_.guard(), device, *rank.compute, training_,
            {plan_.first_layer[stage], program.layers_per_stage[stage], program.has_embedding(stage),
             program.has_head(stage), program.buckets(stage), program.vocabulary_ranks(), rank.place.pp},
            {grid_.tp, rank.place.tp}, share_of(rank), program.strategy.post_validation));
      }
    } catch (const std::runtime_error& error) {  // out of memory
      throw std::runtime_error("rank " + std::to_string(world_rank) + ", its parameters: " + error.what());
    }
  }
}

// Before any step: a library may have no kernel for a size.
void Executor::prepare_gemms(RankState& rank, const Shape& shape) const {
  for (const auto& [op, gemm] : gemms_of_rank(plan_.program, rank.place.pp, training_.model, shape))
    if (const std::string lack = rank.device.kernels().lack_of(gemm_call(gemm, training_.type));
        !lack.empty())
      throw InputError("", "model", lack + ", of " + op,
                       "use another tp, seq or microbatch_size, or --backend cpu");
}

std::unique_ptr<Group> Executor::new_group(const std::string& name, const std::vector<int>& members,
                                           GroupUse use) {
  std::unique_ptr<Group> group = backend_.group(name, members, use);
  const std::string word = name.substr(0, name.find(' '));
  if (auto* const emulated = dynamic_cast<EmulatedGroup*>(group.get());
      emulated != nullptr && emulated->size() > 1)
    emulated_groups_.emplace_back(word == "p2p" ? "pp" : word, emulated);
  return group;
}

Executor::RankGroup Executor::make_group(const std::string& name, const std::vector<int>& members,
                                         GroupUse use) {
  RankGroup group;
  for (const int member : members)
    if (RankState* rank = local(member)) group.ranks.push_back(rank);
  if (!group.ranks.empty()) group.group = new_group(name, members, use);
  return group;
}

void Executor::add_group(std::vector<RankGroup>& to, const std::string& name, const std::vector<int>& members,
                         GroupUse use) {
  if (RankGroup group = make_group(name, members, use); group.group) to.push_back(std::move(group));
}

// All processes make their groups in the same order.
void Executor::make_groups() {
  std::vector<int> all(grid_.size());
  std::iota(all.begin(), all.end(), 0);
  tensor_groups_.resize(grid_.pp);
  data_groups_.resize(grid_.pp);
  context_groups_.resize(grid_.pp);
  tensor_rings_.resize(grid_.pp);
  make_vocabulary_groups();
  for (int world_rank = 0; world_rank < grid_.size(); ++world_rank) {
    const RankGrid::Place place = grid_.place(world_rank);
    const std::vector<int> members = grid_.tensor_group(world_rank);
    if (place.tp == 0) {
      if (RankGroup group = make_group("tp", members); group.group) {
        TensorGroup made{
            std::move(group.ranks), std::move(group.group), new_group("tp inside ops", members), {}};
        if (plan_.program.strategy.sequence_parallel) made.again = new_group("tp again", members);
        tensor_groups_[place.pp].push_back(std::move(made));
      }
    }
    if (place.cp == 0 && grid_.cp > 1)
      add_group(context_groups_[place.pp], "cp", grid_.context_group(world_rank),
                plan_.program.strategy.exchanges_heads() ? GroupUse::collectives : GroupUse::transfers);
    if (place.tp == 0 && plan_.program.strategy.overlaps())
      add_group(tensor_rings_[place.pp], "tp ring", members, GroupUse::transfers);
    if (place.cp == 0 && place.dp == 0 && grid_.cp * grid_.dp > 1)
      add_group(data_groups_[place.pp], "dp", grid_.data_group(world_rank));
    if (plan_.program.schedule.placement.pipelines() > 1 && 2 * place.pp < grid_.pp) {
      RankGrid::Place other = place;
      other.pp = grid_.pp - 1 - place.pp;
      add_group(pipeline_groups_, "pipelines", {world_rank, grid_.rank(other)});
    }
    // The ranks that divide the gradients: those of one replica, or with ZeRO-1 of all replicas; with
    // post-validation, those of one stage.
    const bool zero = plan_.program.strategy.zero, by_stage = plan_.program.strategy.post_validation;
    if (place.tp == 0 && (place.pp == 0 || by_stage) && ((place.dp == 0 && place.cp == 0) || !zero)) {
      std::vector<int> sharing = zero ? all : grid_.model_group(world_rank);
      if (by_stage) std::erase_if(sharing, [&](int rank) { return grid_.place(rank).pp != place.pp; });
      add_group(model_groups_, "model", sharing);
    }
  }
  const Placement& placement = plan_.program.schedule.placement;
  const int first = placement.rank_of(0), last = placement.rank_of(placement.stages() - 1);
  for (int world_rank = 0; reduces_embedding() && world_rank < grid_.size(); ++world_rank) {
    RankGrid::Place place = grid_.place(world_rank);
    if (place.pp != first) continue;
    place.pp = last;
    add_group(tied_groups_, "embedding", {world_rank, grid_.rank(place)});
  }
  if (backend_.processes().count() > 1) world_ = make_group("world", all);
}

void Executor::make_vocabulary_groups() {
  const Program& program = plan_.program;
  vocabulary_groups_.resize(program.streams.size());
  if (program.vocabulary == Vocabulary::whole) return;
  const int per_stage = grid_.size() / grid_.pp;
  for (int i = 0; i < per_stage; ++i) {
    const std::vector<int> members = grid_.pipeline_group(i);
    for (uint32_t stream = 0; stream < program.streams.size(); ++stream)
      if (program.streams[stream].kind == StreamKind::vocabulary)
        add_group(vocabulary_groups_[stream], "vocabulary", members);
    add_group(shared_groups_, "vocabulary inside ops", members);
  }
}

void Executor::make_links() {
  const Program& program = plan_.program;
  links_.resize(program.streams.size());
  for (uint32_t stream = 0; stream < program.streams.size(); ++stream) {
    const ProgramStream& info = program.streams[stream];
    if (info.kind != StreamKind::p2p) continue;
    const int per_stage = grid_.size() / grid_.pp;
    for (int i = 0; i < per_stage; ++i) {
      RankGrid::Place place = grid_.place(i);
      const auto at = [&](int pp) {
        place.pp = pp;
        return grid_.rank(place);
      };
      const std::vector<int> ends{at(info.rank), at(info.peer)};
      Link link;
      link.sender = local(ends[0]);
      link.receiver = local(ends[1]);
      if (link.sender == nullptr && link.receiver == nullptr) continue;
      link.group = new_group("p2p", ends, GroupUse::transfers);
      if (link.sender != nullptr)
        link.send_stream = link.sender->device.make_stream("send to rank " + std::to_string(info.peer),
                                                           StreamPriority::communication);
      else  // if both ends are here, a transfer is one piece of work, on the sender's stream
        link.receive_stream = link.receiver->device.make_stream(
            "receive from rank " + std::to_string(info.rank), StreamPriority::communication);
      links_[stream].push_back(std::move(link));
    }
  }
}

Traffic Executor::traffic(const RankState& rank) const {
  Traffic traffic;
  for (const TensorGroup& group : tensor_groups_[rank.place.pp])
    for (size_t i = 0; i < group.ranks.size(); ++i)
      if (group.ranks[i] == &rank) traffic = group.ops->traffic(static_cast<int>(i));
  for (const auto& groups : vocabulary_groups_)
    for (const RankGroup& group : groups)
      for (size_t i = 0; i < group.ranks.size(); ++i)
        if (group.ranks[i] == &rank)
          traffic.all_reduce_bytes += group.group->traffic(static_cast<int>(i)).all_reduce_bytes;
  for (const auto& links : links_)
    for (const Link& link : links)
      if (link.sender == &rank) traffic.sent_bytes += link.group->traffic(0).sent_bytes;
  for (const auto* rings : {&context_groups_, &tensor_rings_})
    for (const RankGroup& ring : (*rings)[rank.place.pp])
      for (size_t i = 0; i < ring.ranks.size(); ++i)
        if (ring.ranks[i] == &rank)
          traffic.exchanged_bytes += ring.group->traffic(static_cast<int>(i)).sent_bytes;
  return traffic;
}

void Executor::visit_whole(
    Tensor BucketState::*which,
    const std::function<void(const RankState&, ChunkState&, int, const Tensor&)>& visit) {
  const bool shares = plan_.program.strategy.zero;
  const auto is_first = [](const RankState& rank) { return rank.place.dp == 0 && rank.place.cp == 0; };
  const auto visit_own = [&](RankState& rank, int chunk) {
    int index = 0;
    for (const BucketState& bucket : rank.chunks[chunk].buckets)
      visit(rank, rank.chunks[chunk], index++, bucket.*which);
  };
  const auto visit_gathered = [&](RankGroup& group, int chunk, int index) {
    std::vector<Part> parts;
    for (RankState* rank : group.ranks) {
      const BucketState& bucket = rank->chunks[chunk].buckets[index];
      const Tensor& tensor = bucket.*which;
      const Tensor own = tensor.columns == bucket.share_size() ? tensor : bucket.share_of(tensor);
      const Tensor& all = which == &BucketState::weights ? bucket.weights : bucket.gradients;
      parts.push_back({rank->compute.get(), own, all.part(0, group.group->size(), own.columns)});
    }
    group.group->all_gather(parts);
    for (size_t i = 0; i < parts.size(); ++i)
      if (RankState& rank = *group.ranks[i]; is_first(rank))
        visit(rank, rank.chunks[chunk], index, parts[i].out);
  };
  for (int pp = 0; pp < grid_.pp; ++pp)
    for (int chunk = 0; chunk < plan_.program.schedule.chunks(); ++chunk) {
      if (!shares) {
        for (const auto& rank : ranks_)
          if (rank->place.pp == pp && is_first(*rank)) visit_own(*rank, chunk);
        continue;
      }
      for (RankGroup& group : data_groups_[pp]) {
        const auto buckets = static_cast<int>(group.ranks.front()->chunks[chunk].buckets.size());
        for (int index = 0; index < buckets; ++index) visit_gathered(group, chunk, index);
      }
    }
}

std::map<std::string, EmulatedUse> Executor::take_emulated_use() {
  std::map<std::string, EmulatedUse> uses;
  for (const auto& [kind, group] : emulated_groups_) uses[kind] += group->take_use();
  return uses;
}

}  // namespace stp
