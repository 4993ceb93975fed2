#include "stp/schedule/generator.h"

#include "stp/base/error.h"

namespace stp {

Schedule make_schedule(const Generator& generator, GeneratorRequest request) {
  if (request.chunks == 0) request.chunks = generator.chunks;
  check_size(request.pp, request.chunks, request.microbatches);
  if (!generator.any_chunks && request.chunks != generator.chunks)
    throw InputError("", "chunks",
                     std::string(generator.name) + " has " + std::to_string(generator.chunks) +
                         " chunk(s) a rank, not " + std::to_string(request.chunks),
                     "set it to " + std::to_string(generator.chunks));
  return generator.make(request);
}

}  // namespace stp
