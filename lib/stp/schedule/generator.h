// The interface of a schedule generator. A new schedule is one file that defines an
// `extern const Generator schedule_<name>`.
#pragma once

#include <array>

#include "stp/schedule/schedule.h"

namespace stp {

/// What some generators can be told (kGeneratorOptions); 0: the generator's own.
struct GeneratorOptions {
  /// Most activations alive on a rank, in (chunk, microbatch) pairs held until W. Not
  /// BackendOptions::memory_limit, which is in bytes.
  int memory_limit = 0;
  bool operator==(const GeneratorOptions&) const = default;
};

struct GeneratorRequest {
  int pp = 1;
  int microbatches = 1;
  int chunks = 0;   // 0: the generator's own number
  PassCosts costs;  // read by cost-aware generators only
  GeneratorOptions options;
  /// The part of an activation that stays from its I to its W; read by zb-auto, zb-1p and zb-2p only.
  double kept_for_W = 1;
};

struct Generator {
  const char* name;
  const char* summary;       // one line, with the source
  int chunks;                // the usual number of chunks per rank
  bool any_chunks = false;   // other numbers of chunks are possible
  bool cost_aware = false;   // `costs` matter
  bool takes_limit = false;  // so does `options.memory_limit`
  /// Makes the schedule; make_schedule() gives it the name. Throws InputError with the reason if p, m or v is
  /// outside the method's range.
  /// `chunks` is at least 1 and allowed.
  Schedule (*make)(const GeneratorRequest& request);
  const char* range = "any m";  // the supported p and m, in words
  bool slow = false;            // takes seconds for an order: searches leave it out unless it is named
  /// Frameworks that have it built in: "megatron" (core/pipeline_parallel/schedules.py), "pytorch"
  /// (torch.distributed.pipelining).
  std::array<const char*, 2> built_into{};
  /// Schedules of the same placement that hold fewer activations: advice for those whose memory is short.
  std::array<const char*, 2> smaller{};
};

/// An option in scenarios (`memory_limit`) and commands (`--memory-limit`).
struct GeneratorOption {
  const char* name;
  int GeneratorOptions::*value;
  bool Generator::*is_taken;
  int least;
  const char* help;
};
inline constexpr GeneratorOption kGeneratorOptions[] = {{"memory_limit", &GeneratorOptions::memory_limit,
                                                         &Generator::takes_limit, 1,
                                                         "Maximum of activations alive on a rank"}};

/// The schedule whose rank r runs of_rank(p, m, r).
template <typename OfRank>
Schedule by_rank(const GeneratorRequest& request, const Placement& placement, const OfRank& of_rank) {
  Schedule schedule{"", placement, request.microbatches, {}};
  for (int r = 0; r < request.pp; ++r) schedule.ranks.push_back(of_rank(request.pp, request.microbatches, r));
  return schedule;
}

/// Fills in the request's defaults, does the checks common to all generators, makes the schedule and
/// validates it. Throws std::logic_error with the schedule's name and the reason if a generator makes an
/// invalid schedule, which is a bug.
Schedule make_schedule(const Generator& generator, GeneratorRequest request);

}  // namespace stp
