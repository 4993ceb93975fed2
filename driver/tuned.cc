#include "tuned.h"

#include <algorithm>

#include "baselines/registry.h"
#include "choices.h"
#include "run_simulated.h"

namespace stp {

bool has_braids(const Schedule& schedule) {
  return std::ranges::any_of(schedule.ranks,
                             [](const auto& blocks) { return std::ranges::any_of(blocks, &Block::braided); });
}

std::vector<std::string> complications(const Experiment& experiment, const Schedule& schedule,
                                       const std::vector<int>& layers) {
  const Strategy& strategy = experiment.strategy;
  const auto [least, most] = std::ranges::minmax(layers);
  const auto is_W = [](const Block& block) { return block.actions()[0].pass == Pass::W; };
  const bool splits = std::ranges::any_of(
      schedule.ranks, [&](const auto& blocks) { return std::ranges::any_of(blocks, is_W); });
  std::vector<std::string> words;
  for (const Axis* axis : kAxesInNames)
    if (axis->adds != nullptr && strategy.*axis->ranks > 1) words.emplace_back(axis->adds);
  for (const auto& [is_so, word] : {std::pair{schedule.chunks() > 1, "several chunks"},
                                    {splits, "split backwards"},
                                    {has_braids(schedule), "braids"},
                                    {strategy.recompute != Recompute{}, "recomputation"},
                                    {strategy.offload > 0, "offload"},
                                    {strategy.tp_overlap != TpOverlap::none, "TP overlap"},
                                    {least != most, "uneven layers"}})
    if (is_so) words.emplace_back(word);
  return words;
}

bool is_even(const Experiment& experiment, std::vector<int> layers) {
  if (experiment.hardware->model.has_vision() && layers.size() > 1) layers.erase(layers.begin());
  const auto [least, most] = std::ranges::minmax(layers);
  return least > 0 && most - least <= 1 && std::ranges::is_sorted(layers, std::greater{});
}

std::string key_of(const Experiment& experiment, int microbatches) {
  std::string key = name_of(experiment.schedules.front());
  for (const int number : {experiment.strategy.pp, experiment.chunks, microbatches})
    key += " " + std::to_string(number);
  if (const auto& costs = experiment.schedule_costs)
    for (const double number : {costs->F, costs->I, costs->W, costs->p2p, kept_for_W(experiment)})
      key += shown(" %g", number);
  return key;
}

std::string Tuned::name() const {
  const Strategy& strategy = experiment.strategy;
  std::string text = name_of(choice());
  const auto add = [&](const char* what, int number, int usual) {
    if (number != usual) text += std::string(" ") + what + std::to_string(number);
  };
  add("v", experiment.chunks, find_generator(choice().name).chunks);
  for (const Axis* axis : kAxesInNames) add(axis->name, strategy.*axis->ranks, axis->always_named ? 0 : 1);
  add("mb", experiment.microbatch_size, 0);
  if (strategy.sequence_parallel) text += " sp";
  if (strategy.tp_overlap != TpOverlap::none)
    text += std::string(" overlap-") + word_of(strategy.tp_overlap, kTpOverlaps);
  if (strategy.recompute != Recompute{}) text += std::string(" recompute-") + word_of(strategy.recompute);
  if (strategy.offload > 0) text += shown(" offload-%g", strategy.offload);
  if (experiment.split == LayerSplit::balanced) text += " balanced";
  return text;
}

}  // namespace stp
