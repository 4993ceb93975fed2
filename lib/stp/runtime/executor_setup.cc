// Set-up before the first step: the plan, and the ranks, groups and links of this process.
#include "stp/runtime/executor.h"

#include <algorithm>
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
      grid_(plan.program.strategy.grid()),
      data_groups_(grid_.pp),
      exchange_groups_(grid_.pp) {
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
    const auto make = [&](const std::string& name, StreamPriority priority = StreamPriority::communication) {
      return device.make_stream(name, priority);
    };
    rank.compute = make("compute", StreamPriority::compute);
    if (grid_.tp > 1) rank.tp = make("tp");
    if (program.strategy.sequence_parallel) rank.gather = make("gather");
    for (uint32_t stream = 0; stream < program.streams.size(); ++stream) {
      const auto& [kind, owner, peer] = program.streams[stream];
      if (kind == StreamKind::vocabulary) rank.vocabulary[stream] = make("vocabulary");
      if (owner != rank.place.pp) continue;
      if (kind == StreamKind::cp) rank.cp = make("cp");
      if (kind == StreamKind::dp) rank.dp = make("dp");
      if (kind == StreamKind::d2h) rank.d2h = make("d2h");
      if (kind == StreamKind::h2d) rank.h2d = make("h2d");
    }
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
             program.has_head(stage), program.buckets(stage), program.vocabulary != Vocabulary::whole},
            program.strategy, rank.place));
        for (const BucketState& bucket : rank.chunks.back().buckets)
          data_groups_[rank.place.pp][bucket.replicas];
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
  const Program& program = plan_.program;
  const Placement& placement = program.schedule.placement;
  const int first = placement.rank_of(0), last = placement.rank_of(placement.stages() - 1);
  Axes dividing = program.strategy.zero ? kAllAxes : kAllAxes.without(kReplicas);  // the gradients of a norm
  if (program.strategy.post_validation) dividing.pp = false;
  std::map<Axes, const ExchangeRule*> exchanges;
  for (const Op& op : program.ops)
    if (op.kind == OpKind::exchange) exchanges[rule_of(op.exchange).axes] = &rule_of(op.exchange);
  tensor_groups_.resize(grid_.pp);
  vocabulary_groups_.resize(program.streams.size());
  for (int world_rank = 0; world_rank < grid_.size(); ++world_rank) {
    const RankGrid::Place place = grid_.place(world_rank);
    const auto add = [&](std::vector<RankGroup>& to, const char* name, const Axes& axes,
                         GroupUse use = GroupUse::collectives) {
      if (grid_.index(place, axes) == 0) add_group(to, name, grid_.group(world_rank, axes), use);
    };
    const auto add_pair = [&](std::vector<RankGroup>& to, const char* name, int pp) {
      add_group(to, name, {world_rank, grid_.group(world_rank, {.pp = true})[pp]});
    };
    for (uint32_t stream = 0; stream < program.streams.size(); ++stream)
      if (program.streams[stream].kind == StreamKind::vocabulary)
        add(vocabulary_groups_[stream], "vocabulary", {.pp = true});
    if (program.vocabulary != Vocabulary::whole) add(shared_groups_, "vocabulary inside ops", {.pp = true});
    if (place.tp == 0) {
      const std::vector<int> members = grid_.group(world_rank, {.tp = true});
      if (RankGroup group = make_group("tp", members); group.group) {
        TensorGroup made{
            std::move(group.ranks), std::move(group.group), new_group("tp inside ops", members), {}};
        if (program.strategy.sequence_parallel) made.again = new_group("tp again", members);
        tensor_groups_[place.pp].push_back(std::move(made));
      }
    }
    for (const auto& [axes, rule] : exchanges)
      add(exchange_groups_[place.pp][axes], axes.tp ? "tp ring" : "cp", axes,
          rule->all_to_all ? GroupUse::collectives : GroupUse::transfers);
    for (auto& [axes, groups] : data_groups_[place.pp]) add(groups, "dp", axes);
    if (placement.pipelines() > 1 && 2 * place.pp < grid_.pp)
      add_pair(pipeline_groups_, "pipelines", grid_.pp - 1 - place.pp);
    add(model_groups_, "model", dividing);
    if (reduces_embedding() && place.pp == first) add_pair(tied_groups_, "embedding", last);
  }
  if (backend_.processes().count() > 1) world_ = make_group("world", grid_.group(0, kAllAxes));
}

void Executor::make_links() {
  const Program& program = plan_.program;
  links_.resize(program.streams.size());
  for (uint32_t stream = 0; stream < program.streams.size(); ++stream) {
    const ProgramStream& info = program.streams[stream];
    if (info.kind != StreamKind::p2p) continue;
    for (int i = 0; i < grid_.size() / grid_.pp; ++i) {
      const std::vector<int> stages = grid_.group(i, {.pp = true}),
                             ends{stages[info.rank], stages[info.peer]};
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
  for (const auto& [axes, rings] : exchange_groups_[rank.place.pp])
    for (const RankGroup& ring : rings)
      for (size_t i = 0; i < ring.ranks.size(); ++i)
        if (ring.ranks[i] == &rank)
          traffic.exchanged_bytes += ring.group->traffic(static_cast<int>(i)).sent_bytes;
  return traffic;
}

void Executor::for_each_bucket(int pp, int chunk,
                               const std::function<void(const RankGroup&, size_t)>& use) const {
  for (const auto& [axes, groups] : data_groups_[pp])
    for (const RankGroup& group : groups) {
      const std::vector<BucketState>& buckets = group.ranks.front()->chunks[chunk].buckets;
      for (size_t bucket = 0; bucket < buckets.size(); ++bucket)
        if (buckets[bucket].replicas == axes) use(group, bucket);
    }
}

void Executor::visit_whole(
    Tensor BucketState::*which,
    const std::function<void(const RankState&, ChunkState&, int, const Tensor&)>& visit) {
  const bool shares = plan_.program.strategy.zero;
  const auto visit_first = [&](const RankGroup& group, int chunk, size_t index) {
    std::vector<Part> parts;
    for (RankState* rank : group.ranks) {
      const BucketState& bucket = rank->chunks[chunk].buckets[index];
      const Tensor& tensor = bucket.*which;
      const Tensor own = tensor.columns == bucket.share_size() ? tensor : bucket.share_of(tensor);
      const Tensor& all = which == &BucketState::weights ? bucket.weights : bucket.gradients;
      parts.push_back(
          {rank->compute.get(), own, shares ? all.part(0, group.group->size(), own.columns) : tensor});
    }
    if (shares) group.group->all_gather(parts);
    for (size_t i = 0; i < parts.size(); ++i) {
      RankState& rank = *group.ranks[i];
      ChunkState& of = rank.chunks[chunk];
      if (grid_.index(rank.place, of.buckets[index].replicas) == 0)
        visit(rank, of, static_cast<int>(index), parts[i].out);
    }
  };
  for (int pp = 0; pp < grid_.pp; ++pp)
    for (int chunk = 0; chunk < plan_.program.schedule.chunks(); ++chunk)
      for_each_bucket(pp, chunk,
                      [&](const RankGroup& group, size_t index) { visit_first(group, chunk, index); });
}

std::map<std::string, EmulatedUse> Executor::take_emulated_use() {
  std::map<std::string, EmulatedUse> uses;
  for (const auto& [kind, group] : emulated_groups_) uses[kind] += group->take_use();
  return uses;
}

}  // namespace stp
