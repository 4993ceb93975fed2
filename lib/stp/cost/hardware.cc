#include "stp/cost/hardware.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <numeric>

#include "stp/cluster/group_span.h"
#include "stp/cost/attention.h"
#include "stp/cost/gemm.h"
#include "stp/cost/memory.h"
#include "stp/model/offload.h"
#include "stp/model/strategy.h"

namespace stp {
namespace {

double seconds(const Work& work, Implementation implementation, const HardwareProfile& profile,
               int sms_aside = 0) {
  double time = work.kernels * profile.kernel_overhead_s;
  for (const Gemm& gemm : work.gemms) time += gemm_seconds(profile, gemm, sms_aside + profile.receive_sms);
  for (const Attention& attention : work.attentions)
    time += attention_seconds(profile, attention, sms_aside + profile.receive_sms);
  const double factor = implementation == Implementation::megatron ? profile.elementwise_factor : 1;
  time += (work.replicated_bytes * factor + work.sharded_bytes) / profile.memory_bytes_per_s;
  // Where kernels are short, the device waits for the host.
  return implementation == Implementation::suite ? time
                                                 : std::max(time, work.kernels * profile.host_launch_s);
}

// The groups of a job, and the times of the slowest group of each kind.
class Groups {
 public:
  Groups(const Job& job, const HardwareProfile& profile)
      : profile_(profile),
        grid_(job.strategy().grid()),
        whole_nodes_(grid_.tp * grid_.cp * grid_.dp % profile.gpus_per_node == 0),
        different_(whole_nodes_ ? 1 : grid_.pp),
        data_(different_) {
    for (int pp = 0; pp < different_; ++pp) {
      for (int i = 0; i < grid_.cp * grid_.dp; ++i) {
        if (whole_nodes_ && i > 0 && i * grid_.tp % profile.gpus_per_node == 0) break;  // the next nodes
        add(tensor_, pp, grid_.group(grid_.rank({0, 0, 0, pp}) + i * grid_.tp, {.tp = true}));
      }
      for (int tp = 0; tp < grid_.tp; ++tp)
        add(data_[pp], pp, grid_.group(grid_.rank({tp, 0, 0, pp}), kReplicas));
    }
    const int firsts = whole_nodes_ ? profile.gpus_per_node : grid_.rank({0, 0, 0, 1});
    for (int first = 0; first < firsts; ++first)
      add(pipeline_, grid_.group(first, {.pp = true}), {0, grid_.size()});
  }

  using Spans = std::vector<GroupSpan>;
  [[nodiscard]] const Spans& tensor() const { return tensor_; }
  [[nodiscard]] const Spans& pipeline() const { return pipeline_; }
  [[nodiscard]] const Spans& data(int pp) const { return data_[pp % different_]; }
  [[nodiscard]] double all_reduce(const Spans& spans, double bytes) const {
    return slowest(spans, all_reduce_seconds, bytes);
  }
  [[nodiscard]] double half_all_reduce(const Spans& spans, double bytes) const {
    return slowest(spans, half_all_reduce_seconds, bytes);
  }

  // Between the ranks with the same place in two pipeline ranks.
  [[nodiscard]] double pair_all_reduce(int pp, int other, double bytes) const {
    Spans spans;
    const RankRange all = ranks_of(pp), others = ranks_of(other);
    for (int rank = all.begin; rank < all.end; ++rank) {
      std::vector<int> pair{rank, rank - all.begin + others.begin};
      std::sort(pair.begin(), pair.end());
      add(spans, pp, pair);
    }
    return all_reduce(spans, bytes);
  }

  // Seconds of an exchange of `bytes` from each rank to the next, or to each other a share of them: the
  // slowest rank's time. Only sends that leave a node share an adapter. A rank's sends within its node and
  // out of it overlap.
  [[nodiscard]] double exchange(const ExchangeRule& rule, double bytes) const {
    const int size = grid_.along(rule.axes).size(), peers = rule.all_to_all ? size - 1 : 1;
    if (rule.all_to_all) bytes /= size;
    double longest = 0;
    for (int pp = 0; pp < different_; ++pp) {
      std::map<std::pair<int, int>, int> leaving;  // sends by node and adapter
      const RankRange all = ranks_of(pp);
      for (int rank = all.begin; rank < all.end; ++rank) {
        const std::vector<int> group = grid_.group(rank, rule.axes);
        const int own = grid_.index(grid_.place(rank), rule.axes);
        int far = 0;
        for (int peer = own + 1; peer <= own + peers; ++peer)
          far += node_of_rank(group[peer % size]) != node_of_rank(rank) ? 1 : 0;
        if (far < peers)
          longest = std::max(longest, transfer_seconds(profile_.within_node, (peers - far) * bytes));
        if (far > 0) leaving[{node_of_rank(rank), adapter_of(profile_, rank)}] += far;
      }
      for (const auto& [adapter, sends] : leaving)
        longest = std::max(longest, transfer_between_nodes_seconds(profile_, bytes, sends));
    }
    return longest;
  }

  // The node of a pipeline rank, for all replicas. If they are on several nodes, a negative number that no
  // other rank has: some replica's transfer to any other rank is then between nodes.
  [[nodiscard]] int node_of(int pp) const {
    const RankRange all = ranks_of(pp);
    const int first = node_of_rank(all.begin), last = node_of_rank(all.end - 1);
    return first == last ? first : -1 - pp;
  }
  // The largest number of a pipeline rank's ranks on one adapter: they send to the next at the same time.
  [[nodiscard]] int senders() const {
    int most = 0;
    for (int pp = 0; pp < different_; ++pp) {
      std::map<std::pair<int, int>, int> sends;  // by node and adapter
      const RankRange all = ranks_of(pp);
      for (int rank = all.begin; rank < all.end; ++rank)
        most = std::max(most, ++sends[{node_of_rank(rank), adapter_of(profile_, rank)}]);
    }
    return most;
  }

 private:
  [[nodiscard]] int node_of_rank(int rank) const { return rank / profile_.gpus_per_node; }
  [[nodiscard]] RankRange ranks_of(int pp) const {
    return {grid_.rank({0, 0, 0, pp}), grid_.rank({0, 0, 0, pp + 1})};
  }
  // Most groups are equal.
  void add(Spans& spans, int pp, const std::vector<int>& members) const { add(spans, members, ranks_of(pp)); }
  void add(Spans& spans, const std::vector<int>& members, const RankRange& all) const {
    const GroupSpan span = span_of(profile_, members, all);
    if (std::find(spans.begin(), spans.end(), span) == spans.end()) spans.push_back(span);
  }
  using Seconds = double(const HardwareProfile& profile, double bytes, const GroupSpan& span);
  [[nodiscard]] double slowest(const Spans& spans, Seconds* seconds, double bytes) const {
    double longest = 0;
    for (const GroupSpan& span : spans) longest = std::max(longest, seconds(profile_, bytes, span));
    return longest;
  }

  const HardwareProfile& profile_;
  const RankGrid grid_;
  const bool whole_nodes_;  // of each pipeline rank, which then are all alike
  const int different_;     // pipeline ranks
  Spans tensor_, pipeline_;
  std::vector<Spans> data_;  // by pipeline rank, of those that differ
};

// Transfer of a stage's output to the next; `send` gives the seconds of bytes.
template <typename Send>
double hop_seconds(const Job& job, const Groups& groups, Send send) {
  const double bytes = hidden_bytes(job.model, job.shape);
  const int tp = job.strategy().tp;
  if (job.strategy().sequence_parallel) return send(bytes / tp);
  if (job.scatter_transfers) return send(bytes / tp) + groups.half_all_reduce(groups.tensor(), bytes);
  return send(bytes);
}

// The times that fusion does not hide: of the all-gather before the first linear layer of a pass, and of the
// reduce-scatter after the second.
ExposedCollectives fused(const Job& job, const HardwareProfile& profile, Unit unit, UnitPass pass,
                         double collective) {
  const Work of_pass = work(job.model, job.shape, job.implementation, unit, pass);
  const auto left = [&](const Gemm& gemm) {
    return fused_seconds(profile, gemm, collective) - gemm_seconds(profile, gemm);
  };
  if (unit == Unit::head) return {left(of_pass.gemms[0]), collective};
  // I lists its input gradients in the order of the forward.
  const Gemm &one = of_pass.gemms[0], &two = of_pass.gemms[1];
  return pass == UnitPass::F ? ExposedCollectives{left(one), left(two)}
                             : ExposedCollectives{left(two), left(one)};
}

// What a piece of a GEMM takes more than alone (mostly less), in Transformer Engine's overlap. It gives the
// pieces to several streams in turn, and each waits for its own rows alone (_stream_compute in
// common/comm_gemm_overlap/comm_gemm_overlap.cpp): a piece fills the SMs that the one before leaves, so that
// all together take the time of the whole GEMM, but the last ends no sooner than alone after its `exchange`.
double saved_by_streams(const HardwareProfile& profile, const Gemm& piece, int steps, bool last,
                        bool by_columns, double exchange, int sms_aside) {
  Gemm whole = piece;
  (by_columns ? whole.n : whole.m) *= steps;
  const double alone = gemm_seconds(profile, piece, sms_aside),
               share = gemm_seconds(profile, whole, sms_aside) / steps;
  const double behind_rows = exchange > 0 ? alone - (steps - 1) * std::max(0.0, share - exchange) : share;
  return (last ? std::max(share, behind_rows) : share) - alone;
}

// Transformer Engine's recomputed unit gathers its input and reduces its output again, as a checkpoint of
// autograd runs all of it. Where it overlaps them, they hide as in F, but for the last piece's scatter.
double collectives_again(const Job& job, const CostTable& table, Unit unit) {
  const Strategy& strategy = job.strategy();
  const bool again = unit == Unit::mlp ? strategy.recompute.mlp : strategy.recompute.qkv;
  if (!again || !uses_transformer_engine(job.implementation)) return 0;
  if (strategy.overlaps()) return table.last_piece_scatter[static_cast<size_t>(unit)];
  return strategy.sequence_parallel ? table.all_gather + table.reduce_scatter : table.all_reduce;
}

// Adds the parts of the units that job.shape divides.
void add_parts(const Job& job, const HardwareProfile& profile, CostTable& table) {
  const Strategy& strategy = job.strategy();
  const Recipe::OverlapSms& overlap_sms = job.recipe.overlap_sms;
  for (const Unit unit : kLayerUnits) {
    if (!strategy.divides(unit)) continue;
    const auto index = static_cast<size_t>(unit);
    const auto step_seconds = [&](UnitPass pass, UnitPart part, int step, int sms_aside) {
      const Work work = unit_part_work(job.model, job.shape, job.implementation, unit, pass, part, step);
      const double alone = seconds(work, job.implementation, profile, sms_aside);
      const int steps = strategy.steps(unit, pass, part);
      return part == UnitPart::core || steps == 1 || !uses_transformer_engine(job.implementation)
                 ? alone
                 : alone + saved_by_streams(profile, work.gemms.front(), steps, step + 1 == steps,
                                            is_divided_by_columns(strategy, unit, part),
                                            part == UnitPart::before ? table.at(Exchange::rows) : 0,
                                            sms_aside + profile.receive_sms);
    };
    for (const UnitPass pass : {UnitPass::F, UnitPass::I}) {
      const auto steps = [&](UnitPart part, int sms_aside = 0) {
        std::vector<double> all;
        for (int step = 0; step < strategy.steps(unit, pass, part); ++step)
          all.push_back(step_seconds(pass, part, step, sms_aside));
        return all;
      };
      CostTable::Parts& parts = table.parts_of(unit, pass);
      if (strategy.steps(unit, pass, UnitPart::norm) > 0) parts.norm = steps(UnitPart::norm).front();
      parts.before = steps(UnitPart::before);
      if (pass == UnitPass::I) parts.before.back() += collectives_again(job, table, unit);
      parts.core = steps(UnitPart::core);
      // GEMMs beside the methods `pipeline` and `bulk` lose only these SMs: such collectives do not contend
      // (Program::contends). The exchanges of the method `ring_exchange` use copy engines and no SMs.
      parts.after =
          steps(UnitPart::after, pass == UnitPass::F && strategy.overlaps() && !strategy.ring_scatter[index]
                                     ? overlap_sms.forward[index]
                                     : 0);
    }
    if (!strategy.overlaps()) continue;
    if (!table.bulk) table.bulk = std::array<CostTable::Bulk, 2>();
    (*table.bulk)[index] = {
        .after_I = step_seconds(UnitPass::I, UnitPart::after, 0, overlap_sms.input_gradient[index]),
        .W_late = seconds(work(job.model, job.shape, job.implementation, unit, UnitPass::W_late),
                          job.implementation, profile, overlap_sms.weight_gradient[index])};
  }
}

// The data of all-to-alls is first brought into the order of the ranks, and received data into the order of
// rows or heads: each is one read and one write.
void add_exchanges(const Job& job, const HardwareProfile& profile, const Groups& groups, CostTable& table) {
  for (size_t each = 0; each < std::size(kExchanges); ++each) {
    const ExchangeRule& rule = kExchanges[each];
    if (!(job.strategy().*rule.used)()) continue;
    const double bytes = exchange_bytes(job.model, job.shape, static_cast<Exchange>(each));
    table.exchange[each] =
        groups.exchange(rule, bytes) + (rule.all_to_all ? 4 * bytes / profile.memory_bytes_per_s : 0);
  }
}

void add_collectives(const Job& job, const HardwareProfile& profile, const Groups& groups, CostTable& table) {
  // The vocabulary is divided: the loss reduces its maximum, the target's logit and the sum of exponentials,
  // each fp32 per token; Transformer Engine's gathers all three from each rank at once
  // (pytorch/cross_entropy.py). The all-reduce of the head's input gradient hides behind its weight gradient,
  // which is larger.
  const double of_loss = kFp32 * job.shape.tokens();
  table.at(Unit::head, UnitPass::F) +=
      uses_transformer_engine(job.implementation)
          ? groups.half_all_reduce(groups.tensor(), 3 * of_loss * job.strategy().tp)
          : 3 * groups.all_reduce(groups.tensor(), of_loss);
  const double bytes = hidden_bytes(job.model, job.shape);
  if (job.strategy().sequence_parallel) {
    table.reduce_scatter = table.all_gather = groups.half_all_reduce(groups.tensor(), bytes);
    if (job.strategy().overlaps()) {
      table.piece_scatter.fill(groups.half_all_reduce(groups.tensor(), bytes / kPipelineSteps));
      table.last_piece_scatter = table.piece_scatter;
      for (size_t unit = 0; unit < 2; ++unit) {
        if (!job.strategy().ring_scatter[unit]) continue;
        const double own = bytes / job.strategy().tp;  // nothing is sent of them
        table.piece_scatter[unit] = table.at(Exchange::rows);
        table.last_piece_scatter[unit] = (job.strategy().tp + 1) * own / profile.memory_bytes_per_s;
      }
    }
    if (job.strategy().tp_overlap == TpOverlap::flux) {
      table.fused.emplace();
      for (const Unit unit : {Unit::attn, Unit::mlp, Unit::head})
        for (const UnitPass pass : {UnitPass::F, UnitPass::I})
          (*table.fused)[static_cast<size_t>(unit)][pass == UnitPass::F ? 0 : 1] =
              fused(job, profile, unit, pass, table.all_gather);
    }
  } else {
    table.all_reduce = groups.all_reduce(groups.tensor(), bytes);
  }
  for (const Unit unit : kLayerUnits) table.at(unit, UnitPass::I) += collectives_again(job, table, unit);
  if (job.model.has_vision()) {
    const auto reduced = [&](Unit unit, UnitPass pass) {
      return groups.all_reduce(groups.tensor(), reduced_bytes(job.model, job.shape, unit, pass));
    };
    table.vision_all_reduce = reduced(Unit::vision_attn, UnitPass::F);
    table.merged_all_reduce = reduced(Unit::merger, UnitPass::F);
  }
}

// Adds those of all pipeline ranks. A broadcast moves half of what an all-reduce does; the suite's is one
// (lib/stp/runtime). One barrier sums two tensors over the tensor-parallel group that no weight gradient
// hides, and then brings one to all ranks' statistics and adds the other.
void add_shared_vocabulary(const Job& job, const HardwareProfile& profile, const Groups& groups,
                           CostTable& table) {
  const Strategy& strategy = job.strategy();
  const double bytes = hidden_bytes(job.model, job.shape),
               own = strategy.sequence_parallel ? bytes / strategy.tp : bytes,
               of_token = kFp32 * job.shape.tokens();
  CostTable::OfAllStages& all = table.vocabulary;
  all.sum = groups.all_reduce(groups.pipeline(), own);
  all.broadcast =
      job.implementation == Implementation::suite ? all.sum : groups.half_all_reduce(groups.pipeline(), own);
  all.statistics =
      groups.all_reduce(groups.pipeline(), of_token) + groups.all_reduce(groups.pipeline(), 2 * of_token);
  all.sum_and_statistics = all.sum + all.statistics + 7 * own / profile.memory_bytes_per_s;
  all.in_S = 2 * (strategy.sequence_parallel ? groups.half_all_reduce(groups.tensor(), bytes)
                                             : groups.all_reduce(groups.tensor(), bytes));
}

// Adds the times of transfers between stages, for tensors and for the gradients' norm.
void add_transfers(const Job& job, const HardwareProfile& profile, const Groups& groups, CostTable& table) {
  table.transfer_within_node =
      hop_seconds(job, groups, [&](double sent) { return transfer_seconds(profile.within_node, sent); });
  const int senders = groups.senders();
  const auto between_nodes = [&](int sends) {
    return hop_seconds(job, groups, [&](double sent) {
      return transfer_between_nodes_seconds(profile, sent, sends * senders);
    });
  };
  table.transfer_between_nodes = between_nodes(1);
  table.transfer_beside_another = between_nodes(job.sends_share_adapter ? 2 : 1);
  for (int rank = 0; rank < job.strategy().pp; ++rank) table.node_of_rank.push_back(groups.node_of(rank));
  table.number_within_node = transfer_seconds(profile.within_node, sizeof(double));
  table.number_between_nodes = transfer_between_nodes_seconds(profile, sizeof(double), senders);
}

void add_optimizer(const Job& job, const HardwareProfile& profile,
                   const std::vector<double>& parameters_of_ranks, CostTable& table) {
  const double of_own =
      optimizer_bytes(job.implementation, job.shape.gradient_bytes, job.copies_gradients()) +
      2.0 * (job.recipe.state_bytes - Recipe().state_bytes);
  for (const double parameters : parameters_of_ranks) {
    const double own = parameters / job.optimizer_shares();
    const auto moving = [&](double bytes) { return bytes / profile.memory_bytes_per_s; };
    if (job.strategy().post_validation) {
      const double norm = kFp32, in_step = job.implementation == Implementation::suite ? 0 : norm;
      table.gradient_norm.push_back(moving(own * norm));
      table.optimizer.push_back(moving(own * (of_own - in_step + 2 * (job.recipe.state_bytes + kBf16))));
      continue;
    }
    // Transformer Engine's trainer zeroes the gradients of all parameters; others' zeroing is in of_own.
    const double zeroed = uses_transformer_engine(job.implementation) ? job.shape.gradient_bytes : 0;
    table.optimizer.push_back(moving(own * of_own + parameters * zeroed) + profile.step_overhead_s);
  }
}

// The effects of the collectives of gradients and weights on what runs beside them. GEMMs lose the SMs of
// their kernels; as this is small, the optimizer's op has the time that they lose. Nothing runs beside those
// at the step's ends: the first gather and the last reduction of the chunk that the first F and the last B
// belong to, both of its last bucket.
void add_beside_reductions(const Job& job, const HardwareProfile& profile, const Placement& placement,
                           CostTable& table) {
  for (int stage = 0; stage < placement.stages(); ++stage) {
    const int rank = placement.rank_of(stage);
    const bool of_first_chunk = stage == placement.stage(rank, 0);
    const auto sum = [&](const std::vector<double>& all) {
      return std::accumulate(all.begin(), all.end() - (of_first_chunk ? 1 : 0), 0.0);
    };
    const double busy = job.strategy().zero
                            ? sum(table.gradient_scatter[stage]) + sum(table.weight_gather[stage])
                            : sum(table.gradient_reduce[stage]);
    if (job.recipe.gathers_in_step && of_first_chunk) {
      // The first chunk's gather runs beside the step of the others.
      double hidden = table.optimizer[rank] * (placement.chunks() - 1) / placement.chunks();
      for (double& gather : table.weight_gather[stage]) {
        const double beside = std::min(gather, hidden);
        gather -= beside;
        hidden -= beside;
      }
    }
    table.optimizer[rank] += busy * profile.reduction_sms / profile.sms;
  }
}

void add_reductions(const Job& job, const HardwareProfile& profile, const Groups& groups,
                    const std::vector<int>& layers_per_stage, const Placement& placement,
                    const std::vector<Bucket>& first_buckets, CostTable& table) {
  const int first = placement.rank_of(0), last = placement.rank_of(placement.stages() - 1);
  // After ZeRO-1's reductions a rank needs the sums of its share alone; Megatron-LM sums all of a tied table.
  const double own_bytes = double{1} * job.shape.gradient_bytes / job.optimizer_shares();
  if (job.model.tied() && first != last)
    table.embedding_reduce = groups.pair_all_reduce(
        first, last,
        (job.implementation == Implementation::suite ? own_bytes : job.shape.gradient_bytes) *
            job.model.vocabulary_parameters() / job.strategy().tp);
  if (placement.pipelines() > 1) {
    const std::vector<double> of_ranks = parameters_per_rank(job, layers_per_stage, placement);
    for (int rank = 0; rank < placement.ranks(); ++rank)
      table.pipeline_reduce.push_back(
          groups.pair_all_reduce(rank, placement.ranks() - 1 - rank, own_bytes * of_ranks[rank]));
  }
  if (job.strategy().dp * job.strategy().cp == 1) return;
  const std::vector<double> parameters = parameters_per_stage(job, layers_per_stage, placement);
  for (int stage = 0; stage < placement.stages(); ++stage) {
    const int rank = placement.rank_of(stage);
    std::vector<double> of_buckets{parameters[stage]}, reduce, scatter, gather;
    if (placement.is_first(stage) && !first_buckets.empty()) {
      of_buckets.clear();
      for (const Bucket& bucket : first_buckets) of_buckets.push_back(bucket.parameters);
    }
    for (const double own : of_buckets) {
      reduce.push_back(groups.all_reduce(groups.data(rank), job.shape.gradient_bytes * own));
      scatter.push_back(groups.half_all_reduce(groups.data(rank), job.shape.gradient_bytes * own));
      gather.push_back(groups.half_all_reduce(groups.data(rank), job.shape.element_bytes * own));
    }
    table.gradient_reduce.push_back(std::move(reduce));
    table.gradient_scatter.push_back(std::move(scatter));
    table.weight_gather.push_back(std::move(gather));
  }
  add_beside_reductions(job, profile, placement, table);
}

void add_host_copies(const Job& job, const HardwareProfile& profile, const std::vector<int>& layers_per_stage,
                     CostTable& table) {
  if (job.strategy().offload == 0) return;
  const auto seconds = [&](double ratio, double bytes_per_s) {
    auto by_stage = offloaded_bytes(job.model, job.shape, job.implementation, layers_per_stage, ratio);
    for (double& each : by_stage) each /= bytes_per_s;
    return by_stage;
  };
  table.offload = seconds(job.strategy().offload, profile.device_to_host_bytes_per_s);
  table.offload_of_all = seconds(1, profile.device_to_host_bytes_per_s);
  table.reload = seconds(job.strategy().offload, profile.host_to_device_bytes_per_s);
}

// The slowest of `gpus` sets the pace: lowers the rates of compute by the expected largest of as many normal
// deviations (the limit of extreme values).
void slow_down(HardwareProfile& profile, int gpus) {
  if (gpus < 2 || profile.gpu_spread <= 0) return;
  const double root = std::sqrt(2 * std::log(gpus)), pi = std::numbers::pi;
  const double largest =
      root - (std::log(std::log(gpus)) + std::log(4 * pi)) / (2 * root) + std::numbers::egamma / root;
  const double factor = 1 + profile.gpu_spread * std::max(0.0, largest);
  profile.peak_flops /= factor;
  for (MeasuredGemm& gemm : profile.gemm_measured) gemm.seconds *= factor;
  for (MeasuredAttention::Point& point : profile.attention_cudnn.points)
    for (double* rate :
         {&point.causal_forward, &point.causal_backward, &point.full_forward, &point.full_backward})
      *rate /= factor;
}

}  // namespace

CostTable hardware_cost_table(const Job& job, const HardwareProfile& machine,
                              const std::vector<int>& layers_per_stage, const Placement& placement,
                              const std::vector<Bucket>& first_buckets) {
  CostTable table;
  HardwareProfile profile = machine;
  if (!uses_transformer_engine(job.implementation)) profile.attention_cudnn = {};
  if (job.strategy().sequence_parallel)  // work() has divided all traffic
    profile.elementwise_factor *= 1 + machine.elementwise_undivided * (job.strategy().tp - 1);
  // A rank has a link from each neighbour. The next receive is posted as soon as the previous one is done, so
  // one receive per link waits at all times.
  profile.receive_sms *= std::min(2, job.strategy().pp - 1);
  const Groups groups(job, profile);
  slow_down(profile, job.strategy().world_size());
  for (const Unit unit : kUnits)
    for (const UnitPass pass : kUnitPasses)
      table.at(unit, pass) =
          seconds(work(job.model, job.shape, job.implementation, unit, pass), job.implementation, profile);
  add_exchanges(job, profile, groups, table);
  add_collectives(job, profile, groups, table);
  add_parts(job, profile, table);
  if (job.shape.shares_vocabulary) add_shared_vocabulary(job, profile, groups, table);
  add_transfers(job, profile, groups, table);
  add_optimizer(job, profile, parameters_per_rank(job, layers_per_stage, placement), table);
  add_reductions(job, profile, groups, layers_per_stage, placement, first_buckets, table);
  add_host_copies(job, profile, layers_per_stage, table);
  return table;
}

}  // namespace stp
