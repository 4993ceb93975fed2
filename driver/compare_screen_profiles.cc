#include <algorithm>
#include <functional>

#include "compare_screen.h"
#include "stp/cluster/profile_part.h"
#include "table.h"

namespace stp {
namespace {

using nlohmann::json;

std::vector<std::string> machine_names(const json& comparison) {
  std::vector<std::string> names;
  for (const json& machine : comparison.at("machines")) names.push_back(machine.at("name"));
  return names;
}

std::vector<std::string> head_of(const std::string& first, const json& comparison) {
  std::vector<std::string> head{first};
  for (const std::string& name : machine_names(comparison)) head.push_back(name);
  return head;
}

using Cell = std::function<std::string(size_t machine)>;

void add_row(Table& table, const std::string& name, size_t machines, const Cell& cell) {
  std::vector<std::string> row{name};
  for (size_t machine = 0; machine < machines; ++machine) row.push_back(cell(machine));
  table.add(std::move(row));
}

std::optional<double> element(const json& values, size_t i) {
  return values[i].is_number() ? std::optional(values[i].get<double>()) : std::nullopt;
}

std::string milliseconds(std::optional<double> seconds) { return seconds ? fixed(1e3 * *seconds, 2) : "–"; }

// Broken between words into lines of at most 120 columns.
std::string wrapped(const std::string& text) {
  constexpr size_t kWidest = 120;
  std::string lines;
  size_t width = 0, begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const size_t columns = columns_of(word);
    if (width > 0 && width + 1 + columns > kWidest) {
      lines += "\n";
      width = 0;
    }
    lines += (width > 0 ? " " : "") + word;
    width += (width > 0 ? 1 : 0) + columns;
    begin = end + 1;
  }
  return lines + "\n";
}

std::string machines_text(const json& comparison) {
  const json& machines = comparison.at("machines");
  Table table(head_of("machine", comparison));
  const auto row = [&](const std::string& name, const char* key, int decimals) {
    add_row(table, name, machines.size(),
            [&](size_t i) { return fixed(number_at(machines[i], key), decimals); });
  };
  row("peak, TFLOP/s", "peak_tflops", 0);
  row("attention forward, TFLOP/s", "attention_forward_tflops", 0);
  row("attention backward, TFLOP/s", "attention_backward_tflops", 0);
  row("memory as kernels reach it, GB/s", "memory_gb_per_s", 0);
  row("memory, GB", "memory_gb", 0);
  row("p2p within a node, GB/s", "p2p_within_node_gb_per_s", 0);
  row("p2p between nodes, GB/s", "p2p_between_nodes_gb_per_s", 1);
  row("launch, µs", "kernel_overhead_us", 1);
  row("compute beside an all-reduce keeps", "contention_compute", 2);
  row("all-reduce beside compute keeps", "contention_all_reduce", 2);
  std::string text = table.text();
  for (const json& machine : machines) {
    text += "  " + word_of(machine.at("name")) + ": " + word_of(machine.at("accelerator")) + "; contention " +
            word_of(machine.at("contention_source"));
    if (!machine.at("fitted").empty())
      text += "; fitted " + word_of(machine.at("fitted")) + " (to " + word_of(machine.at("fitted_to")) + ")";
    text += "\n";
  }
  return text;
}

std::string gemm_text(const json& comparison) {
  Table table(head_of("TFLOP/s of a layer's products (share of the peak)", comparison));
  const size_t machines = comparison.at("machines").size();
  for (const json& shape : comparison.at("gemm"))
    for (const json& rate : shape.at("rates")) {
      const std::string of = rate.at("of") == "layer" ? "forward and backward" : word_of(rate.at("of"));
      add_row(table,
              word_of(shape.at("model")) + ", " + fixed(number_at(shape, "tokens"), 0) + " tokens, TP" +
                  word_of(shape.at("tp")) + ", " + of,
              machines, [&](size_t i) {
                return fixed(element(rate.at("tflops"), i), 0) + " (" +
                       share_text(element(rate.at("share_of_peak"), i), 0) + ")";
              });
    }
  return table.text();
}

std::string all_reduce_text(const json& comparison) {
  Table table(head_of("all-reduce, ms (bus bandwidth, GB/s)", comparison));
  for (const json& message : comparison.at("all_reduce"))
    add_row(table,
            fixed(message.at("bytes").get<double>() / 1e6, 1) + " MB over " + word_of(message.at("ranks")) +
                " GPUs",
            comparison.at("machines").size(), [&](size_t i) {
              return milliseconds(element(message.at("seconds"), i)) + " (" +
                     fixed(element(message.at("bus_gb_per_s"), i), 0) + ")";
            });
  return table.text();
}

std::string layer_name(const json& layer) {
  return word_of(layer.at("model")) + ", s " + word_of(layer.at("seq")) + " × " +
         word_of(layer.at("microbatch_size")) + ", TP" + word_of(layer.at("tp"));
}

std::string overlap_text(const json& comparison) {
  const size_t machines = comparison.at("machines").size();
  Table shares(head_of("all-reduces, share of a layer's forward, nothing overlapped", comparison));
  for (const json& layer : comparison.at("overlap"))
    add_row(shares, layer_name(layer), machines,
            [&](size_t i) { return share_text(element(layer.at("tp_communication_share"), i)); });

  // Where every all-reduce is shorter than its compute, the shape does not matter: one line says it all.
  std::vector<std::vector<std::string>> rows;
  for (const json& layer : comparison.at("overlap")) {
    std::vector<std::string> row{layer_name(layer)};
    for (size_t i = 0; i < machines; ++i)
      row.push_back(share_text(element(layer.at("exposed_behind_attn"), i), 0) + " | " +
                    share_text(element(layer.at("exposed_behind_mlp"), i), 0));
    rows.push_back(row);
  }
  const bool alike = std::all_of(rows.begin(), rows.end(), [&](const auto& row) {
    return std::equal(row.begin() + 1, row.end(), rows[0].begin() + 1);
  });
  if (alike) {
    rows.resize(1);
    rows[0][0] = "every shape above";
  }
  Table exposed(head_of("an all-reduce, exposed share behind attn.F | mlp.F", comparison));
  for (const auto& row : rows) exposed.add(row);
  return shares.text() + "\n" + exposed.text();
}

constexpr const char* kActivationsFit = "*";
constexpr const char* kNothingFits = "!";

std::string throughput_cell(const json& cell) {
  if (cell.contains("refused")) return "–";
  const std::string fits = cell.at("fits");
  return fixed(number_at(cell, "throughput_samples_per_s"), 3) + (fits == "all"           ? " "
                                                                  : fits == "activations" ? kActivationsFit
                                                                                          : kNothingFits);
}

std::string throughput_text(const json& comparison) {
  const size_t machines = comparison.at("machines").size();
  const std::string of = word_of(comparison.at("gain").at("of")),
                    over = word_of(comparison.at("gain").at("over"));
  Table table(head_of("samples/s", comparison));
  std::string refused;
  for (const json& line : comparison.at("throughput")) {
    const std::string heading = configuration_text(line.at("configuration"));
    table.heading(heading);
    for (const json& schedule : line.at("schedules")) {
      const json& cells = schedule.at("cells");
      add_row(table, "  " + word_of(schedule.at("schedule")), machines,
              [&](size_t i) { return throughput_cell(cells[i]); });
      for (size_t i = 0; i < machines; ++i)
        if (cells[i].contains("refused"))
          refused += "  " + heading + ", " + word_of(schedule.at("schedule")) + " on " +
                     machine_names(comparison)[i] + ": " + word_of(cells[i].at("refused")) + "\n";
    }
    const json& gains = line.at("gains");
    add_row(table, "  gain of " + of + " over " + over, machines,
            [&](size_t i) { return percent(number_at(gains[i], "over_baseline")) + " "; });
    if (std::any_of(gains.begin(), gains.end(),
                    [&](const json& gain) { return !gain.at("best").is_null() && gain.at("best") != over; }))
      add_row(table, "  over the best other", machines, [&](size_t i) {
        const json& best = gains[i].at("best");
        return best.is_null() ? "– "
                              : percent(number_at(gains[i], "over_best")) + " (" + word_of(best) + ") ";
      });
    bool printed = false;
    for (const json& gain : gains) printed = printed || !gain.at("published_over_baseline").is_null();
    if (printed)
      add_row(table, "  gain over " + over + ", published", machines,
              [&](size_t i) { return percent(number_at(gains[i], "published_over_baseline")) + " "; });
  }
  std::string text = table.text();
  text += std::string(kActivationsFit) +
          " the machine's memory holds the activations, but not weights, gradients and AdamW's fp32 state "
          "beside them\n";
  text += std::string(kNothingFits) + " it does not hold the activations alone\n";
  if (!refused.empty()) text += "Not simulated\n" + refused;
  return text;
}

// Of one quantity two lines: the mean over all orders, and each part alone.
void add_quantity(Table& table, const json& quantity, const std::string& name, const json& alike) {
  const bool gain = quantity.at("schedule").is_null();
  const auto value = [&](const char* key) {
    return gain ? percent(number_at(quantity, key)) : fixed(number_at(quantity, key), 3);
  };
  std::vector<std::string> mean{name, value("from"), value("to")}, alone{"  alone", "", ""};
  for (const ProfilePart part : kProfileParts) {
    const json& moved = quantity.at("parts").at(to_string(part));
    const bool same = std::find(alike.begin(), alike.end(), to_string(part)) != alike.end();
    const auto cell = [&](const char* key) {
      if (same) return std::string("–");
      if (gain) return points(number_at(moved, key), 2);
      return percent(moved.at(key).get<double>() / quantity.at("from").get<double>());
    };
    mean.push_back(cell("shapley"));
    alone.push_back(cell("alone"));
  }
  table.add(mean);
  table.add(alone);
}

std::string attribution_text(const json& comparison) {
  std::string text;
  const std::string of = word_of(comparison.at("gain").at("of")),
                    over = word_of(comparison.at("gain").at("over"));
  for (const json& one : comparison.at("attribution")) {
    const std::string from = one.at("from"), to = one.at("to");
    text += "\n" + configuration_text(one.at("configuration")) + ": from " + from + " to " + to + "\n";
    std::vector<std::string> head{"", from, to};
    for (const ProfilePart part : kProfileParts) head.push_back(to_string(part));
    Table table(head);
    json baseline;
    for (const json& quantity : one.at("quantities")) {
      const std::string kind = quantity.at("of");
      if (kind == "gain_over_baseline") baseline = quantity;
      // The best other is mostly the baseline itself.
      if (kind == "gain_over_best" && baseline.is_object() && quantity.at("parts") == baseline.at("parts") &&
          quantity.at("from") == baseline.at("from"))
        continue;
      add_quantity(table, quantity,
                   kind == "throughput"           ? word_of(quantity.at("schedule")) + ", samples/s"
                   : kind == "gain_over_baseline" ? of + " over " + over
                                                  : of + " over the best other",
                   one.at("alike"));
    }
    std::string words = word_of(one.at("words"));
    if (!one.at("published_gain_from").is_null() && !one.at("published_gain_to").is_null())
      words += " The paper has " + fixed(100 * one.at("published_gain_to").get<double>(), 1) + " % for " +
               fixed(100 * one.at("published_gain_from").get<double>(), 1) + " % (published).";
    text += table.text() + wrapped(words);
  }
  return text;
}

}  // namespace

std::string profiles_screen(const json& comparison) {
  const json& machines = comparison.at("machines");
  const bool contention_alike = std::all_of(machines.begin(), machines.end(), [&](const json& machine) {
    return machine.at("contention_compute") == machines[0].at("contention_compute") &&
           machine.at("contention_all_reduce") == machines[0].at("contention_all_reduce");
  });
  std::string text =
      "Machines side by side. All of it is simulated: what the profiles say, replayed by the cost model\n\n";
  text += machines_text(comparison) + "\n" + gemm_text(comparison) + "\n" + all_reduce_text(comparison) +
          "\n" + overlap_text(comparison) + "\n";
  text += "Largest m of " + word_of(comparison.at("scenarios")) + "\n" + throughput_text(comparison);
  if (contention_alike)
    text +=
        "\n" +
        wrapped(
            "Contention is the same in every profile here, so that no machine overlaps better than another: "
            "whether it was measured there is said under the first table.");
  if (!comparison.at("attribution").empty()) {
    text +=
        "\nWhich property makes the difference: the first machine's are replaced by the other's. Per part "
        "the mean over all\n"
        "orders of replacing them (Shapley; the parts add up), below it that part alone. Gains in points, "
        "throughputs in % of the first's\n";
    for (const ProfilePart part : kProfileParts)
      text += "  " + to_string(part) + ": " + describe(part) + "\n";
    text += attribution_text(comparison);
  }
  return text;
}

}  // namespace stp
