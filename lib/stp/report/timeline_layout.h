// What of a step is drawn, and how large: the geometry of timeline_svg.
#pragma once

#include <vector>

#include "stp/simulate/simulate.h"

namespace stp {

struct Span {
  double from, to;
};

/// A stretch of the step that is drawn, from `x` on.
struct Window {
  double from, to, x;
};

/// Pixels, but for what is said to be time.
struct TimelineLayout {
  static constexpr double kLeft = 64, kRight = 24;

  int ranks;                    // how many are drawn
  bool all_reduces, optimizer;  // whether there are any that take time
  double tall, thin, row;       // heights: of the compute track, of the all-reduces' (0: none), of a rank
  std::vector<Window> windows;  // one, or two if the step is cut
  double scale;                 // pixels per unit of time
  double page;                  // width of the page
  double piece;                 // width of a forward's piece, about
  bool halves;                  // whether braids are drawn as two halves, one above the other
  double joined;                // time: gaps up to this long are not drawn

  [[nodiscard]] double x(const Window& window, double time) const {
    return window.x + (time - window.from) * scale;
  }
  [[nodiscard]] bool many() const { return ranks > 16; }
};

/// `share` of the usual length is drawn: below 1 where the text grew too long.
TimelineLayout lay_out(const Program& program, const Timeline& timeline, double share);

}  // namespace stp
