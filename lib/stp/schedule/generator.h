// The interface of a schedule generator. A new schedule is one file that defines one `const Generator`.
#pragma once

#include <string>
#include <vector>

#include "stp/schedule/schedule.h"

namespace stp {

struct GeneratorRequest {
  int pp = 1;
  int microbatches = 1;
  int chunks = 0;   // 0: the generator's own number
  PassCosts costs;  // read by cost-aware generators alone
  int memory_limit =
      0;  // most activations alive on a rank, in (chunk, microbatch) pairs; 0: the generator's own
};

struct Generator {
  const char* name;
  const char* summary;  // one line, with the source
  int chunks;           // its usual number of chunks a rank
  bool any_chunks;      // whether other numbers are possible
  bool cost_aware;      // whether `costs` and `memory_limit` matter
  /// Makes the schedule; InputError where p, m and v are outside the range of the method, with the reason.
  /// `chunks` is at least 1 and allowed when it is called.
  Schedule (*make)(const GeneratorRequest& request);
  const char* range = "any m";  // the p and m that it can do, in words
};

/// Fills in the request's defaults, checks what can be checked for every generator, and makes the schedule.
Schedule make_schedule(const Generator& generator, GeneratorRequest request);

}  // namespace stp
