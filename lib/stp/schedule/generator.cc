#include "stp/schedule/generator.h"

#include <stdexcept>

#include "stp/base/error.h"
#include "stp/schedule/validate.h"

namespace stp {

Schedule make_schedule(const Generator& generator, GeneratorRequest request) {
  if (request.chunks == 0) request.chunks = generator.chunks;
  check_size(request.pp, request.chunks, request.microbatches);
  if (!generator.any_chunks && request.chunks != generator.chunks)
    throw InputError("", "chunks",
                     std::string(generator.name) + " has " + std::to_string(generator.chunks) +
                         " chunk(s) a rank, not " + std::to_string(request.chunks),
                     "set it to " + std::to_string(generator.chunks));
  Schedule schedule = generator.make(request);
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
