#include "stp/report/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace stp {
namespace {

constexpr size_t kExactBelow = 50;  // values of a sample

// Probabilities of U = 0 … n1·n2 where all orders of the values are equally likely. The largest value belongs
// to the first sample with probability i / (i + j), and then exceeds all j of the second.
std::vector<double> u_distribution(size_t n1, size_t n2) {
  std::vector<std::vector<double>> row(n2 + 1);  // of i − 1, then of i, by j
  for (size_t j = 0; j <= n2; ++j) row[j] = {1};
  for (size_t i = 1; i <= n1; ++i) {
    row[0] = {1};
    for (size_t j = 1; j <= n2; ++j) {
      const std::vector<double>&fewer_first = row[j], &fewer_second = row[j - 1];
      std::vector<double> probabilities(i * j + 1, 0);
      const double share = static_cast<double>(i) / static_cast<double>(i + j);
      for (size_t u = 0; u < fewer_first.size(); ++u) probabilities[u + j] += share * fewer_first[u];
      for (size_t u = 0; u < fewer_second.size(); ++u) probabilities[u] += (1 - share) * fewer_second[u];
      row[j] = std::move(probabilities);
    }
  }
  return row[n2];
}

double exact_p(double u, size_t n1, size_t n2) {
  const std::vector<double> probabilities = u_distribution(n1, n2);
  const auto pairs = static_cast<double>(n1 * n2);
  const auto tail = static_cast<size_t>(std::min(u, pairs - u));  // the distribution is symmetric
  return std::min(1.0, 2 * std::accumulate(probabilities.begin(), probabilities.begin() + tail + 1, 0.0));
}

// `ties`: the sum of t³ − t over groups of t equal values.
double approximate_p(double u, double n1, double n2, double ties) {
  const double n = n1 + n2;
  const double variance = n1 * n2 / 12 * (n + 1 - ties / (n * (n - 1)));
  if (variance <= 0) return 1;
  const double z = std::max(0.0, std::abs(u - n1 * n2 / 2) - 0.5) / std::sqrt(variance);
  return std::erfc(z / std::sqrt(2.0));
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

std::optional<MedianInterval> median_interval(std::vector<double> values, double confidence) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  // Outside lie both tails of k − 1 values and fewer below the median: the largest k that leaves enough
  // inside.
  double log_probability = -static_cast<double>(n) * std::log(2.0), tail = 0;
  std::optional<MedianInterval> interval;
  for (size_t k = 1; 2 * k <= n; ++k) {
    tail += std::exp(log_probability);
    if (1 - 2 * tail < confidence) break;
    interval = {values[k - 1], values[n - k], 1 - 2 * tail};
    log_probability += std::log(static_cast<double>(n - k + 1) / static_cast<double>(k));
  }
  return interval;
}

MannWhitney mann_whitney(const std::vector<double>& first, const std::vector<double>& second) {
  struct Ranked {
    double value;
    bool of_first;
  };
  std::vector<Ranked> all;
  for (const double value : first) all.push_back({value, true});
  for (const double value : second) all.push_back({value, false});
  std::sort(all.begin(), all.end(), [](const Ranked& a, const Ranked& b) { return a.value < b.value; });

  double u = 0, ties = 0, smaller_of_second = 0;
  for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    double of_first = 0, of_second = 0;
    for (; end < all.size() && all[end].value == all[begin].value; ++end)
      ++(all[end].of_first ? of_first : of_second);
    u += of_first * (smaller_of_second + of_second / 2);
    smaller_of_second += of_second;
    const double tied = of_first + of_second;
    ties += tied * tied * tied - tied;
  }
  if (ties == 0 && first.size() < kExactBelow && second.size() < kExactBelow)
    return {u, exact_p(u, first.size(), second.size()), true};
  const auto n1 = static_cast<double>(first.size()), n2 = static_cast<double>(second.size());
  return {u, approximate_p(u, n1, n2, ties), false};
}

double least_mann_whitney_p(size_t first, size_t second) {
  if (first >= kExactBelow || second >= kExactBelow)
    return approximate_p(0, static_cast<double>(first), static_cast<double>(second), 0);
  // Two of the (first + second) choose first orders.
  double p = 2;
  for (size_t i = 1; i <= first; ++i) p *= static_cast<double>(i) / static_cast<double>(second + i);
  return std::min(1.0, p);
}

std::vector<double> holm(const std::vector<double>& p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
  std::vector<double> adjusted(p.size());
  double largest = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    largest = std::max(largest, std::min(1.0, static_cast<double>(order.size() - i) * p[order[i]]));
    adjusted[order[i]] = largest;
  }
  return adjusted;
}

}  // namespace stp
