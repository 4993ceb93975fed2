// What overlapping a matrix product and an all-reduce costs and saves, from their times alone and together.
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
  double communication_slowdown;  // likewise
  double compute_rate;            // while both run: share of its speed alone; what is left goes at full speed
  double communication_rate;      // likewise
  double exposed_s;               // communication that compute does not hide: together − compute alone
  double exposed_share;           // of the communication alone
  double saved_s;                 // against one after the other
};

/// Rates are solved from the times: while both run each makes progress at its rate, and what is left of the
/// longer one when the shorter is done goes at full speed.
OverlapFigures overlap_figures(const OverlapTimes& times);

}  // namespace stp
