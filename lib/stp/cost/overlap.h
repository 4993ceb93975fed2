// Costs and savings of overlapping a GEMM and an all-reduce, from their times alone and together.
#pragma once

namespace stp {

/// Seconds. `compute_together` and `communication_together` are from the moment both start to each one's end.
struct OverlapTimes {
  double compute_alone, communication_alone;
  double compute_together, communication_together;
};

struct OverlapFigures {
  double together_s;              // until both are done
  double compute_slowdown;        // over its whole time: together / alone − 1 (the paper's Table 11)
  double communication_slowdown;  // the same
  double compute_rate;        // while both run: share of its speed alone; the remainder runs at full speed
  double communication_rate;  // the same
  double exposed_s;           // communication that compute does not hide: together − compute alone
  double exposed_share;       // of the communication alone
  double saved_s;             // compared with one after the other
};

/// Solves the rates from the times: while both run, each progresses at its rate; when the shorter has
/// finished, the longer one continues at full speed.
OverlapFigures overlap_figures(const OverlapTimes& times);

}  // namespace stp
