#include "stp/report/timeline_svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "stp/report/svg_text.h"
#include "stp/report/timeline_layout.h"

namespace stp {
namespace {

constexpr size_t kMostBytes = 2'000'000;
constexpr double kLeft = TimelineLayout::kLeft;
constexpr double kGlyph = 0.58;  // a digit's width, as a share of the font's size
constexpr double kLeastFont = 6.5;

// Chosen so that all passes and both shades stay apart under the three kinds of colour blindness (CIE76
// distance ≥ 20 under red-green blindness).
constexpr Colour kPassColours[] = {
    {0x15, 0x51, 0xa3}, {0xf5, 0xbe, 0x0b}, {0x1f, 0xa8, 0x3f}, {0x7a, 0x17, 0x38}};
constexpr double kLightest = 0.45;  // share of white in the last chunk's shade
constexpr Colour kOptimizer{0x5a, 0x5f, 0x66};
constexpr const char* kAllReduce = "#b4b9c0";
constexpr const char* kExposed = "#e0002d";
constexpr const char* kInk = "#1c1f23";
constexpr const char* kFaint = "#6a7078";

Colour shade(Pass pass, int chunk, int chunks) {
  const Colour& base = kPassColours[static_cast<int>(pass)];
  const double white = chunks > 1 ? kLightest * chunk / (chunks - 1) : 0;
  const auto mix = [&](int part) { return static_cast<int>(std::lround(part + (255 - part) * white)); };
  return {mix(base.red), mix(base.green), mix(base.blue)};
}

// Adds `span` to `spans`, which are in order of time; joins it to the last one if no more than `gap` lies
// between.
void append(std::vector<Span>& spans, Span span, double gap) {
  if (!(span.to > span.from)) return;
  if (!spans.empty() && span.from - spans.back().to <= gap)
    spans.back().to = std::max(spans.back().to, span.to);
  else
    spans.push_back(span);
}

class Drawing {
 public:
  Drawing(const Program& program, const Timeline& timeline, const std::string& title,
          const std::string& time_unit, double share)
      : program_(program),
        timeline_(timeline),
        title_(title),
        time_unit_(time_unit),
        layout_(lay_out(program, timeline, share)) {}

  std::string text() && {
    legend();
    top_ += 14;
    const double bottom = top_ + layout_.ranks * layout_.row;
    grid(bottom);
    for (int rank = 0; rank < layout_.ranks; ++rank) draw_rank(rank, top_ + rank * layout_.row);
    axis(bottom);
    const std::string width = px(layout_.page), height = px(bottom + 44);
    return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
           "<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"" +
           width + "\" height=\"" + height + "\" viewBox=\"0 0 " + width + " " + height +
           "\" font-family=\"Helvetica, Arial, sans-serif\">\n<title>" + escape_xml(title_) +
           "</title>\n<desc>" + escape_xml(description()) + "</desc>\n<rect width=\"" + width +
           "\" height=\"" + height + "\" fill=\"#fff\"/>\n" + body_ + "</svg>\n";
  }

 private:
  // The part of a block that belongs to one of its actions.
  struct Cell {
    Action action;
    std::vector<Span> pieces;
  };

  [[nodiscard]] std::string time(double value) const { return significant(value, 6) + " " + time_unit_; }

  [[nodiscard]] std::string ranks_and_microbatches() const {
    const Schedule& schedule = program_.schedule;
    return std::to_string(schedule.pp()) + (schedule.pp() == 1 ? " rank, " : " ranks, ") +
           std::to_string(schedule.chunks()) + (schedule.chunks() == 1 ? " chunk" : " chunks") + " each, " +
           std::to_string(schedule.microbatches) +
           (schedule.microbatches == 1 ? " microbatch" : " microbatches");
  }

  // The text alternative: what the picture says, in numbers.
  [[nodiscard]] std::string description() const {
    std::string text = "Timeline of one step of schedule " + program_.schedule.name + ": " +
                       ranks_and_microbatches() + ", " + time(timeline_.step_s) +
                       " long. One row per rank, compute above all-reduces.";
    for (int rank = 0; rank < layout_.ranks; ++rank) {
      const RankTime& spent = timeline_.ranks[rank];
      text += " Rank " + std::to_string(rank) + " computes for " + time(spent.compute_s) + ", waits " +
              time(spent.pp_bubble_s) + " for other ranks and " + time(spent.tp_bubble_s) +
              " for its own all-reduces.";
    }
    return text;
  }

  void write(const std::string& text, double left, double baseline, double size, const char* colour,
             const char* more = "") {
    body_ += "<text" + attribute("x", px(left)) + attribute("y", px(baseline)) +
             attribute("font-size", px(size)) + attribute("fill", colour) + more + ">" + escape_xml(text) +
             "</text>\n";
  }

  void rect(double left, double y, double width, double height, const std::string& more) {
    body_ += "<rect" + attribute("x", px(left)) + attribute("y", px(y)) + attribute("width", px(width)) +
             attribute("height", px(height)) + more + "/>";
  }

  void legend() {
    write(title_, kLeft, 24, 15, kInk, " font-weight=\"bold\"");
    double compute = 0, tp = 0;
    for (const RankTime& rank : timeline_.ranks) {
      compute += rank.compute_s;
      tp += rank.tp_bubble_s;
    }
    std::string facts =
        ranks_and_microbatches() + "; step " + significant(timeline_.step_s, 5) + " " + time_unit_;
    if (const double all = timeline_.step_s * static_cast<double>(timeline_.ranks.size()); all > 0)
      facts += "; computing " + fixed_text(100 * compute / all, 1) + " %, waiting for all-reduces " +
               fixed_text(100 * tp / all, 1) + " %, for other ranks " +
               fixed_text(100 * (all - compute - tp) / all, 1) + " %";
    write(facts, kLeft, 42, 11, kFaint);
    top_ = 58;
    std::string cut;
    if (layout_.windows.size() > 1)
      cut = "Cut: only the first and the last " + significant(layout_.windows[0].to, 3) + " of " +
            significant(timeline_.step_s, 5) + " " + time_unit_ + " are drawn, with microbatches " +
            drawn_microbatches() + " of " + std::to_string(program_.schedule.microbatches) + ". ";
    if (layout_.ranks < program_.schedule.pp())
      cut += "Ranks 0 to " + std::to_string(layout_.ranks - 1) + " of " +
             std::to_string(program_.schedule.pp()) + " are drawn.";
    if (!cut.empty()) {
      write(cut, kLeft, 57, 11, kInk, " font-style=\"italic\"");
      top_ += 15;
    }

    double left = kLeft;
    const auto entry = [&](const std::string& label, double sample, auto draw_sample) {
      const double width = sample + 6 + 5.4 * static_cast<double>(label.size()) + 20;
      if (left + width > layout_.page && left > kLeft) {
        left = kLeft;
        top_ += 17;
      }
      draw_sample(left);
      write(label, left + sample + 6, top_ + 9, 11, kInk);
      left += width;
    };
    constexpr std::array<const char*, 4> kMeanings{"F forward", "I input gradient", "W weight gradient",
                                                   "B full backward"};
    const int chunks = program_.schedule.chunks();
    for (const Pass pass : {Pass::F, Pass::I, Pass::W, Pass::B}) {
      if (!used(pass)) continue;
      const double each = chunks > 4 ? 36.0 / chunks : 14;
      entry(kMeanings[static_cast<int>(pass)], each * chunks, [&](double at) {
        for (int chunk = 0; chunk < chunks; ++chunk)
          rect(at + each * chunk, top_, each, 11, attribute("fill", hex(shade(pass, chunk, chunks))));
      });
    }
    if (chunks > 1)
      entry(chunks == 2 ? "(chunk 0 dark, chunk 1 light)" : "(chunk 0 darkest, later chunks lighter)", -6,
            [](double) {});
    if (braids())
      entry(layout_.halves ? "braid (first action above, second below)" : "braid", 18,
            [&](double at) { rect(at + 0.5, top_ - 0.5, 17, 12, outline_); });
    const auto bar = [&](const char* colour) {
      return [this, colour](double at) { rect(at, top_ + 3, 18, 6, attribute("fill", colour)); };
    };
    if (layout_.all_reduces) {
      entry("all-reduce", 18, bar(kAllReduce));
      entry("all-reduce that compute waits for", 18, bar(kExposed));
    }
    if (layout_.optimizer)
      entry("optimizer", 14, [&](double at) { rect(at, top_, 14, 11, attribute("fill", hex(kOptimizer))); });
    top_ += 11;
  }

  [[nodiscard]] bool used(Pass pass) const {
    for (const auto& blocks : program_.schedule.ranks)
      for (const Block& block : blocks)
        for (const Action& action : block.actions())
          if (action.pass == pass) return true;
    return false;
  }
  [[nodiscard]] bool braids() const {
    for (const auto& blocks : program_.schedule.ranks)
      for (const Block& block : blocks)
        if (block.braided()) return true;
    return false;
  }

  // "0 to 17 and 46 to 63": whose actions are drawn in each window, at least in part.
  [[nodiscard]] std::string drawn_microbatches() const {
    std::string text;
    for (const Window& window : layout_.windows) {
      int low = program_.schedule.microbatches, high = -1;
      for (OpId op = 0; op < program_.rank_begin[layout_.ranks]; ++op) {
        if (program_.stream_of(op).kind != StreamKind::compute || program_.ops[op].kind == OpKind::optimizer)
          continue;
        if (timeline_.end[op] <= window.from || timeline_.start[op] >= window.to) continue;
        low = std::min(low, program_.ops[op].microbatch);
        high = std::max(high, program_.ops[op].microbatch);
      }
      if (high < 0) continue;
      text += (text.empty() ? "" : " and ") + std::to_string(low) + " to " + std::to_string(high);
    }
    return text;
  }

  // The distance of ticks: 1, 2 or 5 times a power of ten, as many as fit.
  [[nodiscard]] double tick() const {
    const double least = 64 / layout_.scale;
    const double power = std::pow(10.0, std::floor(std::log10(least)));
    for (const int factor : {1, 2, 5})
      if (factor * power >= least) return factor * power;
    return 10 * power;
  }
  template <typename Draw>
  void for_each_tick(Draw draw) const {
    if (!(timeline_.step_s > 0)) return;
    const double distance = tick();
    for (const Window& window : layout_.windows) {
      const auto first = static_cast<int64_t>(std::ceil(window.from / distance - 1e-9));
      for (int64_t i = first; static_cast<double>(i) * distance <= window.to * (1 + 1e-12); ++i)
        draw(layout_.x(window, static_cast<double>(i) * distance), static_cast<double>(i) * distance);
    }
  }

  void line(double x1, double y1, double x2, double y2, const char* colour, const char* more = "") {
    body_ += "<line" + attribute("x1", px(x1)) + attribute("y1", px(y1)) + attribute("x2", px(x2)) +
             attribute("y2", px(y2)) + attribute("stroke", colour) + more + "/>\n";
  }

  void grid(double bottom) {
    for_each_tick([&](double at, double) { line(at, top_ - 4, at, bottom, "#e6e8eb"); });
    for (size_t i = 0; i + 1 < layout_.windows.size(); ++i) {
      const double end = layout_.x(layout_.windows[i], layout_.windows[i].to),
                   begin = layout_.windows[i + 1].x;
      for (const double at : {end, begin})
        line(at, top_ - 4, at, bottom, kFaint, " stroke-dasharray=\"3 3\"");
      for (int rank = 0; rank < layout_.ranks; ++rank)
        write("⋯", (begin + end) / 2, top_ + rank * layout_.row + layout_.tall / 2 + 5, 16, kFaint,
              " text-anchor=\"middle\"");
    }
  }

  void axis(double bottom) {
    for (const Window& window : layout_.windows)
      line(window.x, bottom, layout_.x(window, window.to), bottom, kInk);
    const int decimals =
        timeline_.step_s > 0 ? std::max(0, -static_cast<int>(std::floor(std::log10(tick()) + 1e-9))) : 0;
    for_each_tick([&](double at, double value) {
      line(at, bottom, at, bottom + 4, kInk);
      write(fixed_text(value, decimals), at, bottom + 16, 10.5, kInk, " text-anchor=\"middle\"");
    });
    const double middle = (kLeft + layout_.x(layout_.windows.back(), layout_.windows.back().to)) / 2;
    write(time_unit_ == "s" ? "time (s)" : "time (" + time_unit_ + ")", middle, bottom + 34, 11.5, kInk,
          " text-anchor=\"middle\"");
  }

  // When the rank's compute stream idles for an all-reduce of its own.
  [[nodiscard]] std::vector<Span> waits_for_all_reduce(int rank) const {
    std::vector<Span> waits;
    double before = 0;
    for (OpId op = program_.rank_begin[rank]; op < program_.rank_begin[rank + 1]; ++op) {
      if (program_.stream_of(op).kind != StreamKind::compute) continue;
      if (waited_for_own_all_reduce(program_, timeline_, op)) append(waits, {before, timeline_.start[op]}, 0);
      before = timeline_.end[op];
    }
    return waits;
  }

  void draw_rank(int rank, double y) {
    write("rank " + std::to_string(rank), kLeft - 8, y + layout_.tall / 2 + 4, layout_.many() ? 9.5 : 11.5,
          kInk, " text-anchor=\"end\"");
    const std::vector<Span> waits = waits_for_all_reduce(rank);
    std::string all_reduces;
    // White lines between the pieces, where they do not wash out the colours.
    body_ += layout_.piece > 3 ? "<g class=\"compute\" stroke=\"#fff\" stroke-width=\"0.4\">\n"
                               : "<g class=\"compute\">\n";
    size_t wait = 0;
    for (OpId op = program_.rank_begin[rank]; op < program_.rank_begin[rank + 1];) {
      OpId end = op;
      while (end < program_.rank_begin[rank + 1] && program_.ops[end].block == program_.ops[op].block) ++end;
      if (program_.ops[op].kind == OpKind::optimizer) {
        for (; op < end; ++op)
          cell({{timeline_.start[op], timeline_.end[op]}}, "optimizer of rank " + std::to_string(rank),
               hex(kOptimizer), y, layout_.tall, body_);
      } else {
        draw_block(program_.schedule.ranks[rank][program_.ops[op].block], op, end, y);
        draw_all_reduces(op, end, waits, wait, y + layout_.tall + 1, all_reduces);
      }
      op = end;
    }
    body_ += "</g>\n";
    if (layout_.all_reduces) body_ += "<g class=\"all-reduce\">\n" + all_reduces + "</g>\n";
  }

  // The compute of a block: the ops [op, end).
  void draw_block(const Block& block, OpId op, OpId end, double y) {
    std::vector<Cell> cells;
    for (const Action& action : block.actions()) cells.push_back({action, {}});
    std::vector<Span> all;
    for (; op < end; ++op) {
      if (program_.stream_of(op).kind != StreamKind::compute) continue;
      const Op& each = program_.ops[op];
      const bool second =
          block.braided() && cells[1].action == Action{each.pass, each.chunk, each.microbatch};
      append(cells[second ? 1 : 0].pieces, {timeline_.start[op], timeline_.end[op]}, layout_.joined);
      append(all, {timeline_.start[op], timeline_.end[op]}, layout_.joined);
    }
    if (all.empty()) return;
    const bool halves = layout_.halves && block.braided();
    const double height = halves ? layout_.tall / 2 : layout_.tall;
    for (size_t i = 0; i < cells.size(); ++i) {
      const auto& [action, pieces] = cells[i];
      if (pieces.empty()) continue;
      const Span extent{pieces.front().from, pieces.back().to};
      const std::string label = to_string(action) + (block.braided() ? " of braid " + to_string(block) : "") +
                                ": " + time(extent.from) + " to " + time(extent.to);
      cell(halves ? all : pieces, label, hex(shade(action.pass, action.chunk, program_.schedule.chunks())),
           halves && i == 1 ? y + height : y, height, body_);
    }
    // An outline holds together what an all-reduce keeps apart.
    outline({all.front().from, all.back().to}, y, block.braided());
    label_block(block, cells, all, y);
  }

  // A path over `pieces`, with a tooltip; nothing if none is in a window.
  void cell(const std::vector<Span>& pieces, const std::string& tooltip, const std::string& fill, double y,
            double height, std::string& out) const {
    std::string path;
    for (const Window& window : layout_.windows) {
      for (const Span& piece : pieces) {
        const double from = std::max(piece.from, window.from), to = std::min(piece.to, window.to);
        if (to > from)
          path += "M" + px(layout_.x(window, from)) + " " + px(y) + "H" + px(layout_.x(window, to)) + "v" +
                  px(height) + "H" + px(layout_.x(window, from)) + "z";
      }
    }
    if (path.empty()) return;
    out += "<path" + attribute("fill", fill) + attribute("d", path) + "><title>" + escape_xml(tooltip) +
           "</title></path>\n";
  }

  void outline(Span extent, double y, bool braided) {
    for (const Window& window : layout_.windows) {
      const double from = std::max(extent.from, window.from), to = std::min(extent.to, window.to);
      if (to > from)
        rect(layout_.x(window, from), braided ? y - 0.5 : y, (to - from) * layout_.scale,
             braided ? layout_.tall + 1 : layout_.tall, braided ? outline_ : hairline_);
    }
  }

  // The number of each action in its widest piece; where a piece is too narrow, one label over the whole
  // block.
  void label_block(const Block& block, const std::vector<Cell>& cells, const std::vector<Span>& all,
                   double y) {
    struct Label {
      std::string text;
      double centre, baseline, size;
      const char* ink;
    };
    std::vector<Label> labels;
    const bool halves = layout_.halves && block.braided();
    const double height = halves ? layout_.tall / 2 : layout_.tall;
    bool fit = true;
    for (size_t i = 0; i < cells.size(); ++i) {
      const auto& [action, pieces] = cells[i];
      const std::optional<Span> place = widest(halves ? all : pieces);
      if (!place) continue;
      const std::string number = std::to_string(action.microbatch);
      const double room = place->to - place->from - 1;
      const double size = std::min({10.0, height, room / kGlyph / static_cast<double>(number.size())});
      fit = fit && size >= kLeastFont;
      const double middle = y + height * (halves && i == 1 ? 1.5 : 0.5);
      labels.push_back({number, (place->from + place->to) / 2, middle + 0.36 * size, size,
                        ink_on(shade(action.pass, action.chunk, program_.schedule.chunks()))});
    }
    if (!fit && !halves) {
      const std::optional<Span> place = widest({{all.front().from, all.back().to}});
      if (!place) return;
      std::string text = to_string(block);
      constexpr double kSize = 9.5;
      const auto needed = [&] { return (kGlyph + 0.06) * kSize * static_cast<double>(text.size()) + 4; };
      if (needed() > place->to - place->from) {
        text.clear();
        for (const Cell& cell : cells)
          text += (text.empty() ? "" : "&") + std::to_string(cell.action.microbatch);
      }
      const double centre = (place->from + place->to) / 2;
      if (needed() > place->to - place->from) return;
      rect(centre - needed() / 2, y + layout_.tall / 2 - 6, needed(), 12,
           " rx=\"2\" fill=\"#fff\" fill-opacity=\"0.86\" stroke=\"none\"");
      labels = {{text, centre, y + layout_.tall / 2 + 0.36 * kSize, kSize, "#000"}};
    }
    for (const Label& label : labels)
      if (label.size >= kLeastFont)
        write(label.text, label.centre, label.baseline, label.size, label.ink,
              " text-anchor=\"middle\" stroke=\"none\"");
  }

  // The widest of the pieces where they are drawn, in pixels; of several about as wide the one in the middle.
  [[nodiscard]] std::optional<Span> widest(const std::vector<Span>& pieces) const {
    std::vector<Span> drawn;
    double width = 0;
    for (const Window& window : layout_.windows) {
      for (const Span& piece : pieces) {
        const Span here{layout_.x(window, std::max(piece.from, window.from)),
                        layout_.x(window, std::min(piece.to, window.to))};
        if (!(here.to > here.from)) continue;
        drawn.push_back(here);
        width = std::max(width, here.to - here.from);
      }
    }
    if (drawn.empty()) return std::nullopt;
    const double middle = (drawn.front().from + drawn.back().to) / 2;
    std::optional<Span> best;
    const auto off = [&](const Span& span) { return std::abs((span.from + span.to) / 2 - middle); };
    for (const Span& span : drawn)  // the first, but for rounding
      if (span.to - span.from > 0.9 * width && (!best || off(span) < off(*best) - 0.1)) best = span;
    return best;
  }

  // The all-reduces of a block, those in `waits` (from `wait` on) apart.
  void draw_all_reduces(OpId op, OpId end, const std::vector<Span>& waits, size_t& wait, double y,
                        std::string& out) {
    std::vector<Span> hidden, exposed;
    const OpId first = op;
    for (; op < end; ++op) {
      if (program_.stream_of(op).kind != StreamKind::tp) continue;
      double at = timeline_.start[op];
      const double done = timeline_.end[op];
      while (wait < waits.size() && waits[wait].to <= at) ++wait;
      for (size_t i = wait; i < waits.size() && waits[i].from < done; ++i) {
        append(hidden, {at, waits[i].from}, layout_.joined);
        append(exposed, {std::max(at, waits[i].from), std::min(done, waits[i].to)}, layout_.joined);
        at = std::max(at, waits[i].to);
      }
      append(hidden, {at, done}, layout_.joined);
    }
    if (hidden.empty() && exposed.empty()) return;
    const std::string what =
        "all-reduces of " +
        to_string(program_.schedule.ranks[program_.stream_of(first).rank][program_.ops[first].block]);
    const auto add = [&](const std::vector<Span>& spans, const char* colour, const std::string& which) {
      if (!spans.empty())
        cell(spans, which + what + ": " + time(spans.front().from) + " to " + time(spans.back().to), colour,
             y, layout_.thin, out);
    };
    add(hidden, kAllReduce, "");
    add(exposed, kExposed, "exposed ");
  }

  const std::string outline_ = " rx=\"1.5\" fill=\"none\" stroke=\"#111\" stroke-width=\"1.1\"";
  const std::string hairline_ = " fill=\"none\" stroke=\"#111\" stroke-width=\"0.5\"";
  const Program& program_;
  const Timeline& timeline_;
  const std::string &title_, &time_unit_;
  const TimelineLayout layout_;
  double top_ = 0;  // of what is drawn next
  std::string body_;
};

}  // namespace

std::string timeline_svg(const Program& program, const Timeline& timeline, const std::string& title,
                         const std::string& time_unit) {
  for (double share = 1;; share *= 0.8) {
    std::string text = Drawing(program, timeline, title, time_unit, share).text();
    if (text.size() <= kMostBytes || share < 0.05) return text;
  }
}

}  // namespace stp
