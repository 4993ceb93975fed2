#include "parity.h"

#include <cmath>

#include "baselines/registry.h"
#include "stp/backends/backends.h"
#include "stp/program/lower.h"
#include "stp/reference/gradient_error.h"

namespace stp {
namespace {

// The gradients of a step of one rank, without pipeline and collectives.
std::map<std::string, std::vector<double>> gradients_of_one_rank(Training training,
                                                                 const std::vector<TokenSample>& samples,
                                                                 const std::string& backend_name,
                                                                 BackendOptions options) {
  training.grid = {.tp = 1, .cp = 1, .dp = 1, .pp = 1};
  training.record_times = false;
  const int microbatches = static_cast<int>(samples.size()) / training.microbatch_size;
  options.world_size = 1;
  const auto backend = make_backend(backend_name, options);
  // A vision encoder is a chunk of its own.
  const bool vision = training.model.has_vision();
  const Schedule schedule = make_schedule(find_generator("1f1b-i"), {1, microbatches, vision ? 2 : 1});
  std::vector<int> layers(vision ? 1 : 0, 0);
  layers.push_back(training.model.layers);
  Trainer trainer(
      *backend,
      lower(schedule, layers,
            {.optimizer = true, .embedding = true, .vision_layers = training.model.vision.layers}),
      training);
  trainer.step(samples);
  return trainer.gradients();
}

}  // namespace

Parity measure_parity(double loss, const std::map<std::string, std::vector<double>>& gradients,
                      const Training& training, const std::vector<TokenSample>& samples,
                      const std::string& backend, const BackendOptions& options) {
  std::vector<reference::Sample> plain;
  for (const TokenSample& sample : samples) plain.push_back({sample.tokens, sample.targets, sample.patches});
  const auto exact = reference::loss_and_gradients(
      training.model, reference::initial_parameters(training.model, training.initialisation), plain);
  Parity parity{std::abs(loss / exact.loss - 1), reference::gradient_error(gradients, exact.gradients), {}};
  if (training.type == DType::bf16)
    parity.one_rank_gradient = reference::gradient_error(
        gradients_of_one_rank(training, samples, backend, options), exact.gradients);
  return parity;
}

bool parity_holds(const Parity& parity, const std::string& type) {
  if (parity.one_rank_gradient)
    return parity.loss <= 0x1p-8 && parity.gradient <= 2 * *parity.one_rank_gradient && parity.gradient < 0.5;
  const double limit = type == to_string(DType::f64) ? 1e-10 : 1e-5;
  return parity.loss <= limit && parity.gradient <= limit;
}

}  // namespace stp
