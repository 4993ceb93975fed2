#include "stp/schedule/generator.h"

#include <stdexcept>

#include "stp/base/error.h"
#include "stp/schedule/validate.h"

namespace stp {

namespace {

void check_options(const Generator& generator, const GeneratorOptions& options) {
  for (const GeneratorOption& option : kGeneratorOptions) {
    const int value = options.*option.value;
    if (value != 0 && !(generator.*option.is_taken))
      throw InputError("", "", std::string(generator.name) + " takes no " + option.name, "remove it");
    if (value < 0)
      throw InputError("", option.name, std::string(generator.name) + " cannot use " + std::to_string(value),
                       "write " + std::to_string(option.least) + " or more, or leave it out");
  }
}

void check_costs(const Generator& generator, const PassCosts& costs) {
  constexpr double kMost = 1e100;  // whose sums are finite
  for (const double cost : {costs.F, costs.I, costs.W, costs.p2p})
    if (!(cost >= 0 && cost <= kMost))
      throw InputError("", "costs",
                       std::string(generator.name) + " cannot use a cost of " + std::to_string(cost),
                       "write numbers from 0 to 1e100");
}

}  // namespace

Schedule make_schedule(const Generator& generator, GeneratorRequest request) {
  check_options(generator, request.options);
  if (request.chunks == 0) request.chunks = generator.chunks;
  check_size(request.pp, request.chunks, request.microbatches);
  if (!generator.any_chunks && request.chunks != generator.chunks)
    throw InputError("", "chunks",
                     std::string(generator.name) + " has " + counted(generator.chunks, "chunk") +
                         " a rank, not " + std::to_string(request.chunks),
                     "set it to " + std::to_string(generator.chunks));
  if (generator.cost_aware) check_costs(generator, request.costs);
  Schedule schedule = generator.make(request);
  schedule.name = generator.name;
  try {
    validate(schedule);
  } catch (const InputError& error) {
    throw std::logic_error("schedule " + std::string(generator.name) + ", p " + std::to_string(request.pp) +
                           ", m " + std::to_string(request.microbatches) +
                           ": its generator made an invalid order: " + error.what());
  }
  return schedule;
}

}  // namespace stp
