#include <map>
#include <tuple>

#include "profile_comparison.h"
#include "stp/report/machine_figures.h"

namespace stp {
namespace {

using nlohmann::json;

constexpr double kTera = 1e12, kGiga = 1e9;

json or_null(const std::optional<double>& value, double unit) {
  return value ? json(*value / unit) : json(nullptr);
}

// The products of one layer at one number of tokens and TP size, on each machine.
json gemm_json(const std::vector<Machine>& machines, const Experiment& experiment) {
  const Job job = job_of(experiment);
  std::vector<std::vector<GemmFigure>> figures;
  for (const Machine& machine : machines)
    figures.push_back(gemm_figures(machine.profile, job.model, job.shape, job.implementation));
  json products = json::array(), rates = json::array();
  for (size_t i = 0; i < figures[0].size(); ++i) {
    const GemmFigure& first = figures[0][i];
    json tflops = json::array();
    for (const auto& of_machine : figures)
      tflops.push_back(first.gemm.flops() / of_machine[i].seconds / kTera);
    products.push_back({{"of", to_string(first.unit, first.pass)},
                        {"m", first.gemm.m},
                        {"n", first.gemm.n},
                        {"k", first.gemm.k},
                        {"tflops", tflops}});
  }
  const auto add_rate = [&](const std::string& name, std::optional<Unit> unit, std::optional<UnitPass> pass) {
    json tflops = json::array(), shares = json::array();
    for (size_t i = 0; i < machines.size(); ++i) {
      const auto rate = gemm_rate(figures[i], unit, pass);
      tflops.push_back(or_null(rate, kTera));
      shares.push_back(or_null(rate, machines[i].profile.peak_flops));
    }
    rates.push_back({{"of", name}, {"tflops", tflops}, {"share_of_peak", shares}});
  };
  for (const Unit unit : {Unit::attn, Unit::mlp}) add_rate(to_string(unit, UnitPass::F), unit, UnitPass::F);
  add_rate("layer", {}, {});
  return {{"model", job.model.name},
          {"tokens", job.shape.tokens()},
          {"tp", experiment.tp},
          {"products", products},
          {"rates", rates}};
}

json all_reduce_json(const std::vector<Machine>& machines, const Experiment& experiment) {
  const Job job = job_of(experiment);
  const double bytes = hidden_bytes(job.model, job.shape);
  json seconds = json::array(), bandwidths = json::array();
  for (const Machine& machine : machines) {
    const bool fits = misfit(experiment, machine.profile).empty();
    seconds.push_back(fits ? json(all_reduce_seconds(machine.profile, bytes, experiment.tp)) : json(nullptr));
    bandwidths.push_back(fits ? json(all_reduce_bus_bandwidth(machine.profile, bytes, experiment.tp) / kGiga)
                              : json(nullptr));
  }
  return {{"bytes", bytes}, {"ranks", experiment.tp}, {"seconds", seconds}, {"bus_gb_per_s", bandwidths}};
}

// An all-reduce beside the forward of either unit, from the costs that programs are simulated with.
json overlap_json(const std::vector<Machine>& machines, const Experiment& experiment) {
  json shares = json::array(), behind_attn = json::array(), behind_mlp = json::array();
  for (const Machine& machine : machines) {
    if (!misfit(experiment, machine.profile).empty()) {
      for (json* values : {&shares, &behind_attn, &behind_mlp}) values->push_back(nullptr);
      continue;
    }
    const Experiment there = on_machine(experiment, machine);
    // What a layer costs does not depend on where layers are.
    const CostTable table = hardware_cost_table(job_of(there), machine.profile, std::vector<int>(there.pp, 1),
                                                Placement::loop(there.pp, 1));
    shares.push_back(or_null(tp_communication_share(table), 1));
    for (const auto& [unit, into] : {std::pair{Unit::attn, &behind_attn}, {Unit::mlp, &behind_mlp}})
      into->push_back(table.all_reduce > 0 ? json(exposed_share(table.at(unit, UnitPass::F), table.all_reduce,
                                                                contention_of(there)))
                                           : json(nullptr));
  }
  return {{"model", experiment.hardware->model.name},
          {"seq", experiment.hardware->seq},
          {"microbatch_size", experiment.microbatch_size},
          {"tp", experiment.tp},
          {"tp_communication_share", shares},
          {"exposed_behind_attn", behind_attn},
          {"exposed_behind_mlp", behind_mlp}};
}

}  // namespace

json piece_figures(const std::vector<Machine>& machines,
                   const std::vector<ComparedConfiguration>& configurations) {
  // Each shape once, in order of size.
  std::map<std::tuple<std::string, double, int>, const Experiment*> shapes;
  std::map<std::pair<int, double>, const Experiment*> messages;
  std::map<std::tuple<std::string, int, int, int>, const Experiment*> layers;
  for (const ComparedConfiguration& configuration : configurations) {
    const Experiment& experiment = configuration.experiment;
    const Job job = job_of(experiment);
    shapes.try_emplace({job.model.name, job.shape.tokens(), experiment.tp}, &experiment);
    if (experiment.tp > 1)
      messages.try_emplace({experiment.tp, hidden_bytes(job.model, job.shape)}, &experiment);
    layers.try_emplace({job.model.name, job.shape.seq, job.shape.microbatch_size, experiment.tp},
                       &experiment);
  }
  json gemm = json::array(), all_reduce = json::array(), overlap = json::array();
  for (const auto& [shape, experiment] : shapes) gemm.push_back(gemm_json(machines, *experiment));
  for (const auto& [message, experiment] : messages)
    all_reduce.push_back(all_reduce_json(machines, *experiment));
  for (const auto& [layer, experiment] : layers) overlap.push_back(overlap_json(machines, *experiment));
  return {{"gemm", gemm}, {"all_reduce", all_reduce}, {"overlap", overlap}};
}

}  // namespace stp
