// A step drawn to scale: one row per rank, compute above, all-reduces below, as in the paper's figures 5
// and 12.
#pragma once

#include <string>

#include "stp/simulate/simulate.h"

namespace stp {

/// A self-contained SVG 1.1 page of the step. Each pass has a colour, each chunk a shade of it; actions bear
/// their microbatch where there is room, braids an outline. `time_unit` names the unit of `timeline` on the
/// axis ("s", or "unit times"). Idle time is left blank. A long step is cut to its beginning and its end,
/// many ranks to the first 64, both said in the picture, so that the text stays below 2 MB.
std::string timeline_svg(const Program& program, const Timeline& timeline, const std::string& title,
                         const std::string& time_unit = "s");

}  // namespace stp
