#include <CLI/CLI.hpp>
#include <cstdio>

#include "commands.h"
#include "tuner.h"

namespace stp {
void tune_command(const TuneOptions& options, const Arguments&) {
  const TuneSpace space(options);
  Finished finished;
  const TuneResult r = tune(space, options.band < 0 ? 0.01 : options.band, options.exhaustive, finished);
  std::printf("plans %zu configs %zu sim %zu unfit %zu needless %zu bounded %zu same %zu equals %zu\n", space.plans.size(), r.counts.configurations, r.counts.simulated, r.counts.unfit, r.counts.needless, r.counts.bounded, r.counts.same, r.equals);
  for (auto& [k, v] : r.counts.refused) std::printf("%zu %s\n", v, k.c_str());
  for (auto& t : r.best) std::printf("%s step %.4f bound %.4f tok %.1f peak %.1f exp %.3f pp %.3f c%zu %d\n", t.name().c_str(), t.outcome.step_s, t.bound_s, t.outcome.tokens_per_s_per_gpu, t.outcome.peak_gb, t.outcome.exposed_share, t.outcome.pp_share, t.complicated.size(), int(t.fit));
  if (r.nearest) std::printf("nearest %s %.1f\n", r.nearest->name().c_str(), r.nearest->outcome.margin_gb);
}
}  // namespace stp
