// A step drawn to scale: one row per rank, compute above, all-reduces below, as in the paper's figures 5 and 12.
#pragma once

#include <string>

#include "stp/simulate/simulate.h"

namespace stp {

/// An SVG page of the whole step. Passes have a colour each; actions bear their microbatch where there is room.
std::string timeline_svg(const Program& program, const Timeline& timeline, const std::string& title);

}  // namespace stp
