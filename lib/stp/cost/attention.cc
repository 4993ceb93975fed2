#include "stp/cost/attention.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <queue>
#include <tuple>
#include <vector>

namespace stp {
namespace {

// With more tiles, the last tiles hardly matter, and the mean load of an SM is the result.
constexpr double kMostTiles = 1e6;

// The extent of each tile's other dimension, in launch order.
class Tiles {
 public:
  explicit Tiles(const Attention& attention)
      : attention_(attention),
        length_(kAttentionStep *
                std::ceil((attention.backward ? attention.rows : attention.columns) / kAttentionStep)),
        count_(std::ceil((attention.backward ? attention.columns : attention.rows) / kAttentionTile)) {}

  [[nodiscard]] int count() const { return static_cast<int>(count_); }  // of one head
  [[nodiscard]] double all() const { return std::ceil(attention_.heads) * count_; }
  [[nodiscard]] double length(int tile) const {
    if (!attention_.causal) return length_;
    const double before = double{1} * kAttentionTile * tile;
    return attention_.backward ? length_ - before : std::min(length_, before + kAttentionTile);
  }

 private:
  const Attention& attention_;
  double length_, count_;
};

// The time when the last SM ends if each takes the next tile as soon as it is free, in tile lengths.
double simulated_end(const Tiles& tiles, double heads, double overhead, int sms) {
  if (tiles.length(0) == tiles.length(tiles.count() - 1))
    return std::ceil(tiles.all() / sms) * (tiles.length(0) + overhead);
  double all = 0;
  for (int tile = 0; tile < tiles.count(); ++tile) all += tiles.length(tile) + overhead;
  if (tiles.all() > kMostTiles) return std::ceil(heads) * all / sms;
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at(std::greater<>(),
                                                                           std::vector<double>(sms, 0));
  double last = 0;
  for (int head = 0; head < heads; ++head)
    for (int tile = 0; tile < tiles.count(); ++tile) {
      const double end = free_at.top() + tiles.length(tile) + overhead;
      free_at.pop();
      free_at.push(end);
      last = std::max(last, end);
    }
  return last;
}

// The same. Searches ask for few shapes again and again, each of which takes up to a millisecond.
double last_end(const Attention& attention, double overhead, int sms) {
  static std::mutex mutex;
  static std::map<std::tuple<double, double, double, bool, bool, double, int>, double> known;
  const std::tuple key{attention.heads,
                       attention.rows,
                       attention.columns,
                       attention.causal,
                       attention.backward,
                       overhead,
                       sms};
  {
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(key); found != known.end()) return found->second;
  }
  const double end = simulated_end(Tiles(attention), attention.heads, overhead, sms);
  const std::lock_guard lock(mutex);
  return known[key] = end;
}

// The measured rate at the attention's length, the mean of queries and keys.
double measured_rate(const MeasuredAttention& measured, const Attention& attention) {
  const auto rate = [&](const MeasuredAttention::Point& point) {
    if (attention.causal) return attention.backward ? point.causal_backward : point.causal_forward;
    return attention.backward ? point.full_backward : point.full_forward;
  };
  const double seq = std::sqrt(attention.rows * attention.columns);
  const auto above =
      std::ranges::find_if(measured.points, [&](const auto& point) { return point.seq >= seq; });
  if (above == measured.points.begin()) return rate(*above);
  if (above == measured.points.end()) return rate(measured.points.back());
  const auto below = above - 1;
  return std::lerp(rate(*below), rate(*above),
                   std::log2(seq / below->seq) / std::log2(above->seq / below->seq));
}

// Seconds per FLOP at the SMs' full rate of one tile length per second, relative to each other.
double tiled(const HardwareProfile& profile, const Attention& attention, int sms) {
  return last_end(attention, std::max(0.0, profile.attention_tile_overhead), sms) / attention.flops();
}

}  // namespace

double attention_rate(const HardwareProfile& profile, const Attention& attention) {
  if (!profile.attention_cudnn.points.empty())
    return measured_rate(profile.attention_cudnn, attention) * profile.gemm_sustained;
  return profile.peak_flops *
         (attention.backward ? profile.attention_backward_efficiency : profile.attention_forward_efficiency);
}

double attention_seconds(const HardwareProfile& profile, const Attention& attention, int sms_aside) {
  const double rate = attention_rate(profile, attention);
  if (!profile.attention_cudnn.points.empty()) {
    Attention measured = attention;
    measured.heads = profile.attention_cudnn.heads;
    const int sms = profile.sms > sms_aside ? profile.sms - sms_aside : profile.sms;
    return attention.flops() / rate *
           (tiled(profile, attention, sms) / tiled(profile, measured, profile.sms));
  }
  if (profile.attention_tile_overhead < 0) return attention.flops() / rate;
  const int sms = profile.sms > sms_aside ? profile.sms - sms_aside : profile.sms;
  return last_end(attention, profile.attention_tile_overhead, sms) * kAttentionTile *
         attention.flops_per_pair() / (rate / profile.sms);
}

}  // namespace stp
