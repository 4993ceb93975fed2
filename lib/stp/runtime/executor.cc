#include "stp/runtime/executor.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "stp/runtime/host_copies.h"

namespace stp {
namespace {

// Whether what a forward makes is needed beyond its pass: not if its whole layer is recomputed later.
bool keeps(const Recompute& recompute, const Op& op) {
  return !recompute.layer || op.recomputed() || op.unit == Unit::head;
}

// The norm of a forward. What a backward recomputes is there for one pass alone.
void norm_forward(const UnitContext& context, Stream& stream, const std::vector<ParameterState>& parameters,
                  const Op& op, Tensor input, SavedUnit& saved) {
  const auto kind = [](bool kept) { return kept ? MemoryKind::saved : MemoryKind::working; };
  const bool kept = keeps(context.recompute, op);
  norm_forward(context, stream, parameters, std::move(input), saved, kind(kept),
               kind(kept && !context.recompute.norm_of(op.unit)));
}

// In I: what a forward dropped of the norm.
void norm_again(RankState& rank, Stream& stream, const Op& op) {
  SavedUnit& saved = rank.saved_unit(op);
  if (!rank.context->recompute.norm_of(op.unit) || saved[Saved::norm_output]) return;
  norm_forward(*rank.context, stream, rank.parameters(op), saved[Saved::norm_input], saved, MemoryKind::saved,
               MemoryKind::saved);
}

// In I of the merger, which gets the gradient of the language model's input: keeps it for the embedding's W,
// and returns the rows of images.
Tensor keep_for_embedding(RankState& rank, const Op& op, Tensor gradient) {
  Tensor images = image_rows(*rank.context, gradient);
  rank.device.retag(gradient, MemoryKind::saved);
  rank.saved[{Unit::embedding, op.chunk, 0, op.microbatch}][Saved::output_gradient] = std::move(gradient);
  return images;
}

// Whether it is the first op of a unit's F or I but for F's norm.
bool begins(const Op& op) {
  return op.step == 0 && (op.part == UnitPart::whole || op.part == UnitPart::before);
}

// F of a unit of a layer, or of the merger, or a step of a part of it.
void issue_forward(RankState& rank, const Op& op) {
  const UnitContext& context = rank.context_of(op.unit);
  const bool overlaps = context.division.overlaps();
  SavedUnit& saved = rank.saved_unit(op);
  if (op.part == UnitPart::norm || (begins(op) && !context.sequence_parallel))
    norm_forward(context, *rank.compute, rank.parameters(op), op,
                 op.input == kNoValue ? saved[Saved::norm_input] : rank.take(op.input), saved);
  if (op.part == UnitPart::norm) return;
  Tensor gathered;
  if (begins(op) && context.sequence_parallel && !overlaps) gathered = rank.take(op.input);
  const bool in_ring = overlaps && op.part == UnitPart::before;
  const bool last = op.step + 1 == context.division.steps(op.unit, op.unit_pass, op.part);
  const Tensor normed = gathered  ? gathered
                        : in_ring ? ring_rows(context, op, saved)
                                  : saved[Saved::norm_output];
  const Tensor output =
      unit_forward(context, op, rank.parameters(op), normed, saved, keeps(context.recompute, op));
  if (gathered) rank.device.release(*rank.compute, gathered);
  if (in_ring && last) rank.device.release(*rank.compute, saved[Between::ring]);
  if (!output) return;  // there is another part
  (overlaps ? saved[Between::piece] : rank.values[op.output]) = output;
  if (!op.recomputed() && last) drop_recomputed(context, op.unit, saved);
}

// The same of I, with the norm's but with sequence parallelism, where that stands behind the reduce-scatter.
void issue_input_gradient(RankState& rank, const Op& op) {
  const UnitContext& context = rank.context_of(op.unit);
  SavedUnit& saved = rank.saved_unit(op);
  if (begins(op)) norm_again(rank, *rank.compute, op);
  Tensor output_gradient = begins(op) && !context.division.overlaps() ? rank.take(op.input) : Tensor{};
  if (op.unit == Unit::merger && op.pass == Pass::I)
    output_gradient = keep_for_embedding(rank, op, std::move(output_gradient));
  Tensor gradient = unit_input_gradient(context, op, rank.parameters(op), std::move(output_gradient), saved);
  const bool recomputed = (op.part == UnitPart::whole || op.part == UnitPart::before) &&
                          op.step + 1 == context.division.steps(op.unit, op.unit_pass, op.part);
  if (recomputed && op.pass == Pass::I && saved[Between::gathered])  // W gathers it again
    rank.device.release(*rank.compute, saved[Between::gathered]);
  if (!gradient) return;        // there is another part
  if (op.unit == Unit::merger)  // which has no residual
    norm_backward(context, *rank.compute, rank.parameters(op), saved, 0, {}, gradient);
  else if (!context.sequence_parallel)
    norm_backward(context, *rank.compute, rank.parameters(op), saved, 1.0 / context.tp(),
                  saved[Saved::output_gradient], gradient);
  rank.values[op.output] = gradient;
}

// With a vision encoder, the patches of the samples of a replica, by microbatch.
void upload_patches(RankState& rank, const Training& training, std::span<const TokenSample> samples) {
  rank.patches.clear();
  const size_t of_sample = static_cast<size_t>(training.vision_tokens) * kPatchElements;
  for (size_t first = 0; of_sample > 0 && first < samples.size(); first += training.microbatch_size) {
    std::vector<double> values;
    for (const TokenSample& sample : samples.subspan(first, training.microbatch_size)) {
      if (sample.patches.size() != of_sample)
        throw std::logic_error("a sample has " + std::to_string(sample.patches.size()) +
                               " values of patches, not " + std::to_string(of_sample));
      values.insert(values.end(), sample.patches.begin(), sample.patches.end());
    }
    rank.patches.push_back(rank.device.allocate(*rank.compute, MemoryKind::data, training.type,
                                                int64_t{training.microbatch_size} * training.vision_tokens,
                                                kPatchElements));
    upload_doubles(rank.device, *rank.compute, rank.patches.back(), values);
  }
}

// The norm's way back waits for no other op: it can come first. Then all processes issue the same ops before
// they check it. The head is not among these, since it fails the run if the weights are not finite.
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
  if (plan.program.post_validation) plan_check(plan);
  int layer = 0;
  for (const int layers : plan.program.layers_per_stage) {
    plan.first_layer.push_back(layer);
    layer += layers;
  }
  plan.number_on_link.resize(plan.program.ops.size());
  std::vector<uint32_t> on_link(plan.program.streams.size(), 0);
  for (OpId op = 0; op < plan.program.ops.size(); ++op)
    if (plan.program.ops[op].kind == OpKind::transfer)
      plan.number_on_link[op] = on_link[plan.program.ops[op].stream]++;
  return plan;
}

// ---- set-up ----

Executor::Executor(Backend& backend, const ExecutionPlan& plan, const Training& training)
    : backend_(backend), plan_(plan), training_(training), encoder_training_(training.of_encoder()) {
  const Shape shape{.seq = training.seq,
                    .microbatch_size = training.microbatch_size,
                    .tp = training.grid.tp,
                    .sequence_parallel = plan.program.sequence_parallel,
                    .recompute = plan.program.recompute,
                    .element_bytes = static_cast<int>(bytes_of(training.type)),
                    .cp = training.grid.cp,
                    .cp_method = plan.program.division.cp_method};
  for (const int layers : plan.program.layers_per_stage)
    offloaded_.push_back(
        offloaded_tensors(training.model, shape, Implementation::suite, layers, plan.program.offload));
  make_ranks();
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

void Executor::make_ranks() {
  const Program& program = plan_.program;
  const Placement& placement = program.schedule.placement;
  for (const int world_rank : backend_.ranks()) {
    Device& device = backend_.device(world_rank);
    ranks_.push_back(
        std::make_unique<RankState>(RankState{world_rank, training_.grid.place(world_rank), device}));
    RankState& rank = *ranks_.back();
    issuing_ = &rank;
    const auto make = [&](const char* name, StreamPriority priority) {
      return device.make_stream(name, priority);
    };
    rank.compute = make("compute", StreamPriority::compute);
    if (training_.grid.tp > 1) rank.tp = make("tp", StreamPriority::communication);
    if (training_.grid.cp > 1) rank.cp = make("cp", StreamPriority::communication);
    if (training_.grid.cp * training_.grid.dp > 1) rank.dp = make("dp", StreamPriority::communication);
    if (program.sequence_parallel) rank.gather = make("gather", StreamPriority::communication);
    if (program.offload > 0) {
      rank.d2h = make("d2h", StreamPriority::communication);
      rank.h2d = make("h2d", StreamPriority::communication);
    }
    rank.context.emplace(UnitContext{device, *rank.compute, training_, rank.place.tp, rank.place.cp,
                                     program.sequence_parallel, program.recompute, program.division});
    rank.encoder.emplace(UnitContext{device, *rank.compute, encoder_training_, rank.place.tp, rank.place.cp,
                                     program.sequence_parallel, program.recompute, program.division});
    try {
      for (int chunk = 0; chunk < placement.chunks(); ++chunk) {
        const int stage = placement.stage(rank.place.pp, chunk);
        rank.chunks.push_back(
            make_chunk(device, *rank.compute, training_,
                       {plan_.first_layer[stage], program.layers_per_stage[stage], stage == 0,
                        stage + 1 == placement.stages(), program.buckets(stage)},
                       rank.place.tp, share_of(rank), program.post_validation));
      }
    } catch (const std::runtime_error& error) {  // out of memory
      throw std::runtime_error("rank " + std::to_string(world_rank) + ", its parameters: " + error.what());
    }
  }
}

Executor::RankGroup Executor::make_group(const std::string& name, const std::vector<int>& members,
                                         GroupUse use) {
  RankGroup group;
  for (const int member : members)
    if (RankState* rank = local(member)) group.ranks.push_back(rank);
  if (!group.ranks.empty()) group.group = backend_.group(name, members, use);
  return group;
}

// All processes ask for their groups in the same order.
void Executor::make_groups() {
  const RankGrid& grid = training_.grid;
  std::vector<int> all(grid.size());
  std::iota(all.begin(), all.end(), 0);
  tensor_groups_.resize(grid.pp);
  data_groups_.resize(grid.pp);
  context_rings_.resize(grid.pp);
  tensor_rings_.resize(grid.pp);
  for (int world_rank = 0; world_rank < grid.size(); ++world_rank) {
    const RankGrid::Place place = grid.place(world_rank);
    const std::vector<int> members = grid.tensor_group(world_rank);
    if (place.tp == 0) {
      if (RankGroup group = make_group("tp", members); group.group) {
        TensorGroup made{
            std::move(group.ranks), std::move(group.group), backend_.group("tp inside ops", members), {}};
        if (plan_.program.sequence_parallel) made.again = backend_.group("tp again", members);
        tensor_groups_[place.pp].push_back(std::move(made));
      }
    }
    if (place.cp == 0 && grid.cp > 1)
      for (RankGroup& ring : make_rings(grid.context_group(world_rank)))
        context_rings_[place.pp].push_back(std::move(ring));
    if (place.tp == 0 && plan_.program.division.overlaps())
      if (RankGroup ring = make_group("tp ring", members, GroupUse::transfers); ring.group)
        tensor_rings_[place.pp].push_back(std::move(ring));
    if (place.cp == 0 && place.dp == 0 && grid.cp * grid.dp > 1)
      if (RankGroup group = make_group("dp", grid.data_group(world_rank)); group.group)
        data_groups_[place.pp].push_back(std::move(group));
    // The ranks among which the gradients are divided: of a replica, or, with ZeRO-1, of all; with
    // post-validation those of one stage.
    const bool zero = plan_.program.zero, by_stage = plan_.program.post_validation;
    if (place.tp == 0 && (place.pp == 0 || by_stage) && ((place.dp == 0 && place.cp == 0) || !zero)) {
      std::vector<int> sharing = zero ? all : grid.model_group(world_rank);
      if (by_stage) std::erase_if(sharing, [&](int rank) { return grid.place(rank).pp != place.pp; });
      if (RankGroup group = make_group("model", sharing); group.group)
        model_groups_.push_back(std::move(group));
    }
  }
  if (backend_.processes().count() > 1) world_ = make_group("world", all);
}

// A ring; for an all-to-all one for each distance that something goes, or several, if that goes round before
// it has passed all.
std::vector<Executor::RankGroup> Executor::make_rings(const std::vector<int>& members) {
  const int count = static_cast<int>(members.size());
  const int farthest = plan_.program.division.exchanges_heads() ? count - 1 : 1;
  std::vector<RankGroup> rings;
  for (int distance = 1; distance <= farthest; ++distance)
    for (int first = 0; first < std::gcd(distance, count); ++first) {
      std::vector<int> ring;
      for (int at = first; ring.empty() || at != first; at = (at + distance) % count)
        ring.push_back(members[at]);
      if (RankGroup made = make_group("cp", ring, GroupUse::transfers); made.group)
        rings.push_back(std::move(made));
    }
  return rings;
}

void Executor::make_links() {
  const Program& program = plan_.program;
  const RankGrid& grid = training_.grid;
  links_.resize(program.streams.size());
  for (uint32_t stream = 0; stream < program.streams.size(); ++stream) {
    const ProgramStream& info = program.streams[stream];
    if (info.kind != StreamKind::p2p) continue;
    const int per_stage = grid.size() / grid.pp;
    for (int i = 0; i < per_stage; ++i) {
      RankGrid::Place place = grid.place(i);
      const auto at = [&](int pp) {
        place.pp = pp;
        return grid.rank(place);
      };
      const std::vector<int> ends{at(info.rank), at(info.peer)};
      Link link;
      link.sender = local(ends[0]);
      link.receiver = local(ends[1]);
      if (link.sender == nullptr && link.receiver == nullptr) continue;
      link.group = backend_.group("p2p", ends, GroupUse::transfers);
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
  for (const auto& links : links_)
    for (const Link& link : links)
      if (link.sender == &rank) traffic.sent_bytes += link.group->traffic(0).sent_bytes;
  for (const auto* rings : {&context_rings_, &tensor_rings_})
    for (const RankGroup& ring : (*rings)[rank.place.pp])
      for (size_t i = 0; i < ring.ranks.size(); ++i)
        if (ring.ranks[i] == &rank)
          traffic.exchanged_bytes += ring.group->traffic(static_cast<int>(i)).sent_bytes;
  return traffic;
}

void Executor::visit_whole(
    Tensor BucketState::*which,
    const std::function<void(const RankState&, ChunkState&, int, const Tensor&)>& visit) {
  const bool shares = plan_.program.zero;
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
      parts.push_back({rank->compute.get(), own,
                       rank->device.allocate(*rank->compute, MemoryKind::data, own.type, group.group->size(),
                                             own.columns)});
    }
    group.group->all_gather(parts);
    for (size_t i = 0; i < parts.size(); ++i) {
      RankState& rank = *group.ranks[i];
      if (is_first(rank)) visit(rank, rank.chunks[chunk], index, parts[i].out);
      rank.device.release(*rank.compute, parts[i].out);
    }
  };
  for (int pp = 0; pp < training_.grid.pp; ++pp)
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
  const auto take = [&](const std::string& kind, Group* group) {
    auto* const emulated = dynamic_cast<EmulatedGroup*>(group);
    if (emulated != nullptr && emulated->size() > 1) uses[kind] += emulated->take_use();
  };
  for (const auto& groups : tensor_groups_)
    for (const TensorGroup& group : groups)
      for (Group* each : {group.ops.get(), group.inside.get(), group.again.get()}) take("tp", each);
  const auto take_all = [&](const std::string& kind, const std::vector<std::vector<RankGroup>>& stages) {
    for (const auto& groups : stages)
      for (const RankGroup& group : groups) take(kind, group.group.get());
  };
  take_all("tp", tensor_rings_);
  take_all("cp", context_rings_);
  take_all("dp", data_groups_);
  for (const RankGroup& group : model_groups_) take("model", group.group.get());
  for (const auto& links : links_)
    for (const Link& link : links) take("pp", link.group.get());
  return uses;
}

// ---- a step ----

void Executor::issue_step(std::span<const TokenSample> samples) {
  const bool post_validation = plan_.program.post_validation;
  try {
    begin_step(samples);
    if (post_validation) {
      issue(0, plan_.issued_before_check);
      if (!last_step_stands()) {
        throw_away_forwards();
        begin_step(samples);
        issue(0, plan_.issued_before_check);
      }
      release_totals();
      for (const auto& rank : ranks_) {  // now that none is needed for the last step
        clear_gradients(*rank);
        others_wait_for_compute(*rank);
      }
    }
    ++updates_;
    issue(plan_.issued_before_check, plan_.order.ops.size());
    if (!post_validation) issue_optimizers(std::exchange(optimizers_, {}));
    unchecked_ = post_validation;
  } catch (const Cancelled&) {
    throw;
  } catch (const NotFinite&) {
    throw;
  } catch (const std::exception& error) {
    throw std::runtime_error("rank " + std::to_string(issuing_->world_rank) + ", " +
                             (issuing_op_ ? to_string(plan_.program.stream_of(*issuing_op_).kind) + ", " +
                                                describe_op(plan_.program, *issuing_op_)
                                          : "begin of the step") +
                             ": " + error.what());
  }
}

void Executor::issue(size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    const OpId op = plan_.order.ops[i];
    issuing_op_ = op;
    if (plan_.program.ops[op].kind == OpKind::optimizer && !plan_.program.post_validation)
      optimizers_.push_back(op);  // each the last op of its rank
    else
      issue(op);
  }
}

void Executor::clear_gradients(RankState& rank) const {
  for (const ChunkState& chunk : rank.chunks)
    for (const BucketState& bucket : chunk.buckets)
      rank.device.kernels().fill(*rank.compute, bucket.gradients, 0);
}

// With sequence parallelism, gradients of norm gains are added to on the tp stream. With ZeRO-1, the last
// step's weights are gathered on the dp stream.
void Executor::others_wait_for_compute(RankState& rank) const {
  const EventRef begun = rank.compute->fence();
  rank.collectives().wait(begun);
  if (rank.dp) rank.dp->wait(begun);
}

void Executor::begin_step(std::span<const TokenSample> samples) {
  issuing_op_.reset();
  const Schedule& schedule = plan_.program.schedule;
  const size_t per_replica = samples.size() / training_.grid.dp;
  for (const auto& rank : ranks_) {
    issuing_ = rank.get();
    Device& device = rank->device;
    rank->ops.assign(plan_.program.rank_begin[rank->place.pp + 1] - plan_.program.rank_begin[rank->place.pp],
                     {});
    rank->arrivals.clear();
    if (!plan_.program.post_validation) clear_gradients(*rank);

    const auto own = samples.subspan(rank->place.dp * per_replica, per_replica);
    // `images`: how many tokens of a sample those of its image replace.
    const auto upload = [&](std::vector<Tensor>& tensors, auto member, int images) {
      for (int microbatch = 0; microbatch < schedule.microbatches; ++microbatch) {
        std::vector<int32_t> flat;
        for (int i = 0; i < training_.microbatch_size; ++i) {
          const auto& row = own[static_cast<size_t>(microbatch) * training_.microbatch_size + i].*member;
          for (int j = 0; j < training_.own_seq(); ++j)
            flat.push_back(j < images
                               ? -1
                               : row[position_of(training_.grid.cp, rank->place.cp, training_.own_seq(), j)]);
        }
        tensors.push_back(
            device.allocate(*rank->compute, MemoryKind::data, DType::i32, training_.tokens(), 1));
        device.upload(*rank->compute, tensors.back(), std::as_bytes(std::span(flat)));
      }
    };
    const int stages = schedule.placement.stages();
    if (schedule.placement.rank_of(0) == rank->place.pp) {
      upload(rank->tokens, &TokenSample::tokens, training_.image_tokens());
      upload_patches(*rank, training_, own);
    }
    if (schedule.placement.rank_of(stages - 1) == rank->place.pp) {
      upload(rank->targets, &TokenSample::targets, 0);
      rank->loss = device.allocate(*rank->compute, MemoryKind::data, statistics_type(training_.type), 1, 1);
      device.kernels().fill(*rank->compute, rank->loss, 0);
    }
  }
  if (world_.group) synchronize_ranks();
  for (const auto& rank : ranks_) others_wait_for_compute(*rank);
  for (auto& links : links_)
    for (Link& link : links) link.taken.clear();
}

// No member completes a sum before all members have reached it.
void Executor::synchronize_ranks() {
  std::vector<Part> parts;
  for (RankState* rank : world_.ranks) {
    Tensor flag = rank->device.allocate(*rank->compute, MemoryKind::working, DType::f32, 1, 1);
    rank->device.kernels().fill(*rank->compute, flag, 0);
    parts.push_back({rank->compute.get(), flag, flag});
  }
  world_.group->all_reduce(Reduce::sum, parts);
  common_start_ = world_.ranks.front()->compute->record();
  for (size_t i = 0; i < parts.size(); ++i)
    world_.ranks[i]->device.release(*world_.ranks[i]->compute, parts[i].in);
}

void Executor::finish_step() {
  for (const auto& rank : ranks_) {
    if (rank->loss) {
      rank->loss_value = download_doubles(rank->device, *rank->compute, rank->loss)[0];
      rank->device.release(*rank->compute, rank->loss);
    }
    for (auto* tensors : {&rank->tokens, &rank->targets}) {
      for (Tensor& tensor : *tensors) rank->device.release(*rank->compute, tensor);
      tensors->clear();
    }
  }
  for (const auto& rank : ranks_) rank->device.synchronize();
}

std::vector<OpTime> Executor::op_times(const RankState& rank) const {
  std::vector<OpTime> times;
  for (const OpEvents& op : rank.ops) times.push_back({op.started->seconds(), op.done->seconds()});
  return times;
}

// ---- ops ----

void Executor::begin(RankState& rank, Stream& stream, OpId id) {
  issuing_ = &rank;
  // With graphs the device gets here what the op before left: collectives first.
  for (Stream* each : {rank.tp.get(), rank.gather.get(), rank.compute.get(), &stream})
    if (each != nullptr) each->begin(id);
  for (const OpId needed : plan_.program.dependencies(id)) {
    stream.wait(events(rank, needed).done);
    if (plan_.program.frees(id, needed)) free_offloaded(rank, stream, needed);
  }
  if (training_.record_times) events(rank, id).started = stream.record();
}

void Executor::end(RankState& rank, Stream& stream, OpId id) {
  const EventRef done = events(rank, id).done = stream.record();
  for (const OpId needed : plan_.program.dependencies(id)) {
    if (is_own(rank, needed) || plan_.program.ops[needed].kind != OpKind::transfer) continue;
    for (Link& link : links_[plan_.program.ops[needed].stream]) {
      if (link.receiver != &rank) continue;
      link.taken.resize(std::max<size_t>(link.taken.size(), plan_.number_on_link[needed] + 1));
      EventRef& taken = link.taken[plan_.number_on_link[needed]];
      if (!taken) taken = done;
    }
  }
}

void Executor::issue(OpId id) {
  const Op& op = plan_.program.ops[id];
  if (op.kind == OpKind::transfer) return issue_transfer(id);
  if (is_exchange(op.kind)) return issue_exchange(id);
  if (is_of_replicas(op.kind)) return issue_of_replicas(id);
  if (is_host_copy(op.kind)) return issue_host_copy(id);
  if (op.kind == OpKind::gradient_norm) return issue_gradient_norm(id);
  if (is_norm_transfer(op.kind)) return issue_norm_transfer(id);
  if (op.kind == OpKind::optimizer) return issue_optimizer(id);
  if (op.kind == OpKind::embedding_reduce) throw std::logic_error("tied embeddings are only simulated");
  for (TensorGroup& group : tensor_groups_[plan_.program.stream_of(id).rank]) {
    const auto stream_of = [&](RankState& rank) -> Stream& {
      return is_collective(op.kind) ? rank.collectives() : *rank.compute;
    };
    const bool collective = is_collective(op.kind);
    for (RankState* rank : group.ranks) {
      // Before the op begins, whose time this is not.
      if (!collective && rank->behind_collective) rank->device.hold_compute(*rank->compute);
      rank->behind_collective = collective && rank->tp;
      begin(*rank, stream_of(*rank), id);
    }
    if (collective)
      issue_collective(group, op);
    else
      issue_compute(group, op);
    for (RankState* rank : group.ranks) end(*rank, stream_of(*rank), id);
  }
}

void Executor::issue_compute(TensorGroup& group, const Op& op) {
  const bool forward = op.unit_pass == UnitPass::F;
  if (!has_pass(op.unit, UnitPass::I)) {  // it works on samples
    for (RankState* rank : group.ranks) {
      issuing_ = rank;
      issue_samples(*rank, op);
    }
    return;
  }
  if (!forward && op.unit_pass != UnitPass::I) return issue_weight_gradients(group, op);
  if (!forward && begins(op) && (op.pass == Pass::B || plan_.program.recompute.first_linear(op.unit)))
    gather_again(group, op);
  if (op.unit == Unit::head && forward) {
    const double tokens = static_cast<double>(training_.tokens()) * training_.grid.cp * training_.grid.dp;
    return head_forward(group, op, 1.0 / (tokens * plan_.program.schedule.microbatches));
  }
  if (op.unit == Unit::head) return head_input_gradient(group, op);
  for (RankState* rank : group.ranks) {
    issuing_ = rank;
    if (forward)
      issue_forward(*rank, op);
    else
      issue_input_gradient(*rank, op);
  }
}

// Of the embedding, of tokens or of patches: F, and the gradient of its weights.
void Executor::issue_samples(RankState& rank, const Op& op) {
  const bool forward = op.unit_pass == UnitPass::F;
  const UnitContext& context = rank.context_of(op.unit);
  const ParameterState& weight = rank.parameters(op).front();
  if (op.unit == Unit::patches) {
    Tensor& patches = rank.saved_unit(op)[Saved::patches];
    if (!forward) {
      patches_weight_gradient(context, weight, patches, rank.take(op.input));
      rank.saved.erase({op.unit, op.chunk, op.layer, op.microbatch});
      return;
    }
    patches = std::exchange(rank.patches.at(op.microbatch), {});
    rank.device.retag(patches, MemoryKind::saved);
    rank.values[op.output] = patches_forward(context, weight, patches);
    return;
  }
  const Tensor& tokens = rank.tokens[op.microbatch];
  if (forward) {
    const Tensor out = embedding_forward(context, weight, tokens);
    if (op.input != kNoValue) add_images(context, rank.take(op.input), out);
    rank.values[op.output] = out;
    return;
  }
  // Behind a vision encoder I has kept it; B goes on with those of its rows that are of images.
  auto kept = rank.saved.extract({op.unit, op.chunk, op.layer, op.microbatch});
  Tensor gradient = kept ? kept.mapped()[Saved::output_gradient] : rank.take(op.input);
  if (op.output != kNoValue) rank.values[op.output] = image_rows(context, gradient);
  embedding_weight_gradient(context, weight, tokens, gradient);
}

void Executor::issue_weight_gradients(TensorGroup& group, const Op& op) {
  gather_again(group, op);
  for (RankState* rank : group.ranks) {
    issuing_ = rank;
    SavedUnit& saved = rank->saved_unit(op);
    const bool both = op.kind == OpKind::weight_gradients;
    if (both || op.unit_pass == UnitPass::W_early)
      unit_weight_gradient(rank->context_of(op.unit), op.unit, UnitPass::W_early, rank->parameters(op),
                           saved);
    if (!both && op.unit_pass == UnitPass::W_early) continue;
    unit_weight_gradient(rank->context_of(op.unit), op.unit, UnitPass::W_late, rank->parameters(op), saved);
    rank->saved.erase({op.unit, op.chunk, op.layer, op.microbatch});
  }
}

// With sequence parallelism, the norm's output is saved in shards of rows, and gathered again for
// recomputation and weight gradients, concurrently with the compute stream.
void Executor::gather_again(TensorGroup& group, const Op& op) {
  if (!plan_.program.sequence_parallel || group.ranks.front()->saved_unit(op)[Between::gathered]) return;
  std::vector<Part> parts;
  for (RankState* rank : group.ranks) {
    SavedUnit& saved = rank->saved_unit(op);
    rank->gather->wait(rank->compute->fence());
    norm_again(*rank, *rank->gather, op);
    saved[Between::gathered] = rank->context->make(*rank->gather, MemoryKind::working, training_.tokens(),
                                                   saved[Saved::norm_output].columns);
    parts.push_back({rank->gather.get(), saved[Saved::norm_output], saved[Between::gathered]});
  }
  group.again->all_gather(parts);
  for (RankState* rank : group.ranks) rank->saved_unit(op).gathered_at = rank->gather->fence();
}

void Executor::issue_collective(TensorGroup& group, const Op& op) {
  std::vector<Part> parts;
  for (RankState* rank : group.ranks) {
    issuing_ = rank;
    if (op.kind == OpKind::all_gather) {
      parts.push_back(gather_part(*rank, op));
      continue;
    }
    const bool piece = op.part != UnitPart::whole;
    const Tensor in = piece ? std::exchange(rank->saved_unit(op)[Between::piece], {}) : rank->take(op.input);
    const UnitContext& context = *rank->context;
    parts.push_back({&rank->collectives(), in, in});
    if (op.kind == OpKind::reduce_scatter)
      parts.back().out =
          context.make(rank->collectives(), MemoryKind::working, context.own_tokens(), in.columns);
  }
  if (op.kind == OpKind::all_reduce)
    group.ops->all_reduce(Reduce::sum, parts);
  else if (op.kind == OpKind::reduce_scatter)
    group.ops->reduce_scatter(parts);
  else
    group.ops->all_gather(parts);

  for (size_t i = 0; i < parts.size(); ++i) {
    RankState& rank = *group.ranks[i];
    issuing_ = &rank;
    Stream& stream = rank.collectives();
    Tensor &in = parts[i].in, &out = parts[i].out;
    SavedUnit* const saved = op.unit == Unit::embedding ? nullptr : &rank.saved_unit(op);
    if (op.kind == OpKind::reduce_scatter) {
      rank.device.release(stream, in);
      if (op.unit_pass == UnitPass::I) {
        norm_backward(*rank.context, stream, rank.parameters(op), *saved, 1, (*saved)[Between::residual],
                      out);
        rank.device.release(stream, (*saved)[Between::residual]);
      }
    }
    if (op.kind == OpKind::all_gather && saved == nullptr) rank.device.release(stream, in);
    if (op.part != UnitPart::whole && !add_piece(rank, op, rank.saved_unit(op), out)) continue;
    if (op.output == kNoValue)
      rank.device.release(stream, out);
    else
      rank.values[op.output] = out;
  }
}

// Puts a reduced piece of columns in its place; after the last, `piece` is the whole.
bool Executor::add_piece(RankState& rank, const Op& op, SavedUnit& saved, Tensor& piece) {
  Stream& stream = rank.collectives();
  if (op.step == 0)
    saved[Between::output] =
        rank.context->make(stream, MemoryKind::working, piece.rows, kPipelineSteps * piece.columns);
  rank.device.kernels().copy_columns(stream, piece, 0, saved[Between::output], op.step * piece.columns,
                                     piece.columns);
  rank.device.release(stream, piece);
  if (op.step + 1 < kPipelineSteps) return false;
  piece = std::exchange(saved[Between::output], {});
  return true;
}

// A unit's input with sequence parallelism: forward its norm's output, backward the output's gradient, whose
// own rows are later the residual.
Part Executor::gather_part(RankState& rank, const Op& op) {
  const UnitContext& context = *rank.context;
  Stream& stream = rank.collectives();
  Tensor in = op.input == kNoValue ? rank.saved_unit(op)[Saved::norm_input] : rank.take(op.input);
  if (op.unit_pass == UnitPass::F) {
    SavedUnit& saved = rank.saved_unit(op);
    norm_forward(context, stream, rank.parameters(op), op, in, saved);
    in = saved[Saved::norm_output];
  } else if (op.unit != Unit::embedding) {
    rank.device.retag(in, MemoryKind::working);
    rank.saved_unit(op)[Between::residual] = in;
  }
  const Tensor out = context.make(stream, MemoryKind::working, context.tokens(), in.columns);
  return {&stream, in, out};
}

void Executor::issue_transfer(OpId id) {
  const Op& op = plan_.program.ops[id];
  const size_t number = plan_.number_on_link[id], ahead = plan_.order.receives_ahead;
  for (Link& link : links_[op.stream]) {
    Stream& stream = link.sender != nullptr ? *link.send_stream : *link.receive_stream;
    if (link.sender != nullptr) begin(*link.sender, stream, id);
    if (link.receiver != nullptr) {
      issuing_ = link.receiver;
      stream.begin(id);
      if (number >= ahead) stream.wait(link.taken.at(number - ahead));
      if (training_.record_times) link.receiver->arrivals[id].started = stream.record();
    }
    for (const ValueId value : {op.input, op.output}) {
      if (value == kNoValue) continue;
      std::vector<Part> parts;
      if (link.sender != nullptr) parts.push_back({&stream, link.sender->take(value), {}});
      if (link.receiver != nullptr) {
        const UnitContext& context = *link.receiver->context;
        const Tensor received =
            context.make(stream, MemoryKind::communication, context.own_tokens(), training_.model.hidden);
        parts.push_back({&stream, {}, received});
        link.receiver->values[value] = received;
      }
      link.group->transfer(parts);
      if (link.sender != nullptr) link.sender->device.release(stream, parts.front().in);
    }
    if (link.sender != nullptr) end(*link.sender, stream, id);
    if (link.receiver != nullptr) link.receiver->arrivals[id].done = stream.record();
  }
}

void Executor::issue_exchange(OpId id) {
  const Op& op = plan_.program.ops[id];
  const bool rows = op.kind == OpKind::row_exchange;
  const auto stream_of = [&](const RankState& rank) { return rows ? rank.tp.get() : rank.cp.get(); };
  const int stage = plan_.program.stream_of(id).rank;
  std::map<const RankState*, ExchangeTensors> tensors;  // of all ranks of the stage
  for (const auto& rank : ranks_) {
    if (rank->place.pp != stage) continue;
    begin(*rank, *stream_of(*rank), id);
    SavedUnit& saved = rank->saved_unit(op);
    if (op.input != kNoValue) {
      saved[Between::residual] = rank->take(op.input);
      rank->device.retag(saved[Between::residual], MemoryKind::working);
    }
    tensors[rank.get()] = exchange_tensors(*rank->context, *stream_of(*rank), op, saved);
  }
  for (RankGroup& ring : (rows ? tensor_rings_ : context_rings_)[stage]) {
    const int size = ring.group->size();
    std::vector<Part> parts;
    for (size_t i = 0; i < ring.ranks.size(); ++i) {
      const RankState& rank = *ring.ranks[i];
      // Of an all-to-all only the block that one of the two has for the other.
      const auto part_with = [&](const Tensor& tensor, int member) {
        if (op.kind != OpKind::all_to_all) return tensor;
        return block_of(*rank.context, tensor, training_.grid.place(ring.group->members()[member % size]).cp);
      };
      const auto& [sent, received] = tensors.at(&rank);
      const int own = ring.group->local()[i];
      parts.push_back({stream_of(rank), part_with(sent, own + 1), part_with(received, own + size - 1)});
    }
    ring.group->transfer(parts);
  }
  for (const auto& rank : ranks_) {
    if (rank->place.pp != stage) continue;
    finish_exchange(*rank->context, *stream_of(*rank), op, tensors.at(rank.get()), rank->saved_unit(op));
    end(*rank, *stream_of(*rank), id);
  }
}

void Executor::issue_of_replicas(OpId id) {
  const Op& op = plan_.program.ops[id];
  for (RankGroup& group : data_groups_[plan_.program.stream_of(id).rank]) {
    std::vector<Part> parts;
    for (RankState* rank : group.ranks) {
      begin(*rank, *rank->dp, id);
      const BucketState& bucket = rank->chunks[op.chunk].buckets.at(op.step);
      const Tensor& all = op.kind == OpKind::weight_gather ? bucket.weights : bucket.gradients;
      if (op.kind == OpKind::gradient_reduce) {
        parts.push_back({rank->dp.get(), all, all});
        continue;
      }
      const Tensor own = bucket.share_of(all), shares = all.part(0, group.group->size(), own.columns);
      const bool gathers = op.kind == OpKind::weight_gather;
      parts.push_back({rank->dp.get(), gathers ? own : shares, gathers ? shares : own});
    }
    if (op.kind == OpKind::weight_gather)
      group.group->all_gather(parts);
    else if (op.kind == OpKind::gradient_scatter)
      group.group->reduce_scatter(parts);
    else
      group.group->all_reduce(Reduce::sum, parts);
    for (RankState* rank : group.ranks) end(*rank, *rank->dp, id);
  }
}

void Executor::issue_host_copy(OpId id) {
  const Op& op = plan_.program.ops[id];
  const std::vector<OffloadedTensor>& tensors = offloaded_[plan_.program.stage_of(id)];
  for (TensorGroup& group : tensor_groups_[plan_.program.stream_of(id).rank])
    for (RankState* rank : group.ranks) {
      Stream& stream = op.kind == OpKind::offload ? *rank->d2h : *rank->h2d;
      begin(*rank, stream, id);
      if (op.kind == OpKind::offload)
        offload(*rank, id, op, tensors);
      else
        reload(*rank, op, tensors);
      end(*rank, stream, id);
    }
}

// The optimizer ops of all ranks: the gradients' norm is a sum over all of them.
void Executor::issue_optimizers(const std::vector<OpId>& ids) {
  for (const OpId id : ids)
    for (TensorGroup& group : tensor_groups_[plan_.program.stream_of(id).rank]) {
      for (RankState* rank : group.ranks) begin(*rank, *rank->compute, id);
      add_gradient_norms(group);
    }
  for (RankGroup& group : model_groups_) {
    std::vector<Part> parts;
    for (RankState* rank : group.ranks) parts.push_back({rank->compute.get(), rank->norm, rank->norm});
    group.group->all_reduce(Reduce::sum, parts);
  }
  AdamW options = training_.optimizer;
  options.step = updates_;
  for (const OpId id : ids)
    for (TensorGroup& group : tensor_groups_[plan_.program.stream_of(id).rank])
      for (RankState* rank : group.ranks) {
        issuing_ = rank;
        Kernels& kernels = rank->device.kernels();
        kernels.check_finite(*rank->compute, rank->norm, "the gradients' norm");
        for (const ChunkState& chunk : rank->chunks)
          for (const BucketState& bucket : chunk.buckets)
            kernels.adamw(*rank->compute, options, training_.clip_norm, rank->norm,
                          bucket.share_of(bucket.gradients), bucket.first_moment, bucket.second_moment,
                          bucket.master, bucket.share_of(bucket.weights));
        rank->device.release(*rank->compute, rank->norm);
        end(*rank, *rank->compute, id);
      }
}

// For parameters that tensor parallelism does not divide, each rank of the group has a summand of the
// gradient.
void Executor::add_gradient_norms(TensorGroup& group) const {
  for (RankState* rank : group.ranks) {
    rank->norm = rank->device.allocate(*rank->compute, MemoryKind::working, DType::f64, 1, 1);
    rank->device.kernels().fill(*rank->compute, rank->norm, 0);
  }
  const auto add_squares = [](RankState& rank, double factor, const Tensor& gradients) {
    if (gradients.elements() > 0)
      rank.device.kernels().add_sum_of_squares(*rank.compute, factor, gradients, rank.norm);
  };
  const auto add_bucket = [&](size_t chunk, size_t index) {
    std::vector<Part> partial;  // of each rank's share: the same part on all
    for (RankState* rank : group.ranks) {
      const BucketState& bucket = rank->chunks[chunk].buckets[index];
      const Tensor own = bucket.share_of(bucket.gradients);
      const int64_t whole = std::clamp<int64_t>(bucket.partial_begin - bucket.share_begin, 0, own.columns);
      add_squares(*rank, 1, own.part(0, 1, whole));
      const Tensor rest = own.part(whole, 1, own.columns - whole);
      if (rest.elements() > 0) partial.push_back({rank->compute.get(), rest, rest});
    }
    if (partial.empty()) return;
    group.inside->all_reduce(Reduce::sum, partial);
    for (size_t i = 0; i < partial.size(); ++i)
      add_squares(*group.ranks[i], 1.0 / training_.grid.tp, partial[i].in);
  };
  const std::vector<ChunkState>& chunks = group.ranks.front()->chunks;  // alike on all
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk)
    for (size_t index = 0; index < chunks[chunk].buckets.size(); ++index) add_bucket(chunk, index);
}

}  // namespace stp
