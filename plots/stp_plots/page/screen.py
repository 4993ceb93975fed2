"""Comparisons on a terminal. None is shown as "–"."""

import collections
import textwrap

from stp_plots import words
from stp_plots.judge.compare_profiles import PARTS
from stp_plots.words import Table


def differences(comparison):
    """Differences of the files besides their figures, a line each."""
    lines = []
    for one in comparison["differs"]:
        length = 12 if one["field"] == "revision" else None  # its first digits identify it
        lines.append(f"  {one['field']}: " + " | ".join(words.word(value)[:length] for value in one["values"]) + "\n")
    return "They differ in\n" + "".join(lines) if lines else ""


# ---- records ----


def schedule_of(row):
    """The schedule that a line is of; where files were compared with one each, theirs."""
    return " | ".join(dict.fromkeys(cell["schedule"] for cell in row["cells"] if cell))


def step_text(cell):
    interval = cell["step_time_interval_s"]
    return words.duration(cell["step_time_s"]) + (" [{}, {}]".format(*map(words.duration, interval)) if interval else "")


def table_of(comparison, head, lines_of):
    """A table with a heading per configuration; `lines_of` a row are its lines."""
    table, heading = Table(head), None
    for row in comparison["rows"]:
        lines = lines_of(row)
        where = words.configuration(row["configuration"])
        if lines and where != heading:
            table.rows.append(where)
            heading = where
        for line in lines:
            table.rows.append(line)
    return table.text()


def figures_text(comparison):
    def lines_of(row):
        present = [(file, cell) for file, cell in zip(comparison["files"], row["cells"]) if cell]
        lines = []
        for file, cell in present if len(present) > 1 else []:
            to_first = cell["against_first"]
            throughput, step, memory = (words.change(to_first[key]) if to_first else ""
                                        for key in ("throughput", "step_time", "peak_memory"))
            lines.append(["" if lines else "  " + schedule_of(row), f"{file['label']} {file['evidence']}",
                          words.plain(cell["throughput_samples_per_s"], 3), throughput, step_text(cell), step,
                          (to_first and to_first["verdict"]) or "", words.plain_percent(cell["mfu"]),
                          words.plain_percent(cell["pp_bubble_share"]), words.plain_percent(cell["tp_bubble_share"]),
                          words.plain(cell["peak_memory_gb"], 2), memory])
        return lines

    return table_of(comparison, ["  schedule", "file", "samples/s", "vs A", "step", "vs A", "verdict", "MFU", "PP bubble",
                                 "TP bubble", "GB", "vs A"], lines_of)


def predictions_text(comparison, errors):
    labels = [file["label"] for file in comparison["files"]]
    # The one of the two that is not the first has the predictions.
    place = max(labels.index(errors["predicted_by"]), labels.index(errors["actual"]))

    def lines_of(row):
        one = row["cells"][place] and row["cells"][place]["prediction"]
        return [["  " + schedule_of(row), words.duration(one["predicted_step_s"]), words.duration(one["actual_step_s"]),
                 words.change(one["step_error"], 2), words.word(one["within_interval"]),
                 words.change(one["peak_memory_error"])]] if one else []

    text = (f"\nPrediction errors: {errors['predicted_by']} ({errors['predicted_evidence']}) of what {errors['actual']} has "
            f"({errors['actual_evidence']})\n")
    text += table_of(comparison, ["  schedule", "predicted step", "actual step", "error", "in its interval", "memory error"],
                     lines_of)
    if errors["step_error_mean"] is not None:
        text += (f"Step time: mean absolute error {words.plain_percent(errors['step_error_mean'], 2)}, largest error "
                 f"{words.change(errors['step_error_worst'], 2)}; within the 95 % interval of the median in "
                 f"{errors['within_interval']} of {errors['intervals']} rows that have one\n")
    return text


def missing_text(comparison):
    """Rows that not every file has, those of one configuration together."""
    places = {}
    for row in comparison["rows"]:
        if None in row["cells"]:
            present = ", ".join(file["label"] for file, cell in zip(comparison["files"], row["cells"]) if cell)
            places.setdefault((present, words.configuration(row["configuration"])), []).append(schedule_of(row))
    lines = "".join(f"  only in {present}: {where}: {', '.join(names)}\n" for (present, where), names in places.items())
    return f"\nRows that are not in every file (their figures: --json)\n{lines}" if lines else ""


def show_records(comparison):
    text = "".join(f"{file['label']}  {file['path']}: {file['scenario']}, {file['evidence']}\n"
                   for file in comparison["files"])
    text += differences(comparison) + "\n" + figures_text(comparison)
    text += "".join(predictions_text(comparison, errors) for errors in comparison["predictions"]) + missing_text(comparison)
    text += "\nBubbles are those of the rank that computes most; GB is peak activation memory."
    rule = comparison["rule"]
    if rule["comparisons"]:
        text += (" In brackets: 95 % interval of the median (order\nstatistics). Verdicts are on the step, by the Mann-Whitney "
                 f"U test with Holm's correction over {rule['comparisons']} comparisons at {words.plain_percent(rule['error_rate'], 0)}; "
                 f"less than {words.plain_percent(rule['least_difference'], 0)} is the same, or inconclusive where an interval "
                 f"is over ±{words.plain_percent(rule['noisy_above'], 0)}.")
    return text + "\n"


# ---- benchmarks ----


def half_width(cell):
    """Half the interval of the median, relative."""
    if not cell["interval_s"] or cell["median_s"] <= 0:
        return "–"
    low, high = cell["interval_s"]
    return f"±{words.plain_percent((high - low) / 2 / cell['median_s'])}"


def p_text(p):
    return f"{p:.3f}" if p >= 0.001 else f"{p:.0e}"


def show_benchmarks(comparison):
    files, rule = comparison["files"], comparison["rule"]
    head = ["benchmark"]
    for file in files:
        head += [f"{file['label']}, median", "95 %"] + (["vs A", "adjusted p", "verdict"] if file is not files[0] else [])
    table, verdicts, noisy, missing = Table(head), collections.Counter(), 0, ""
    for row in comparison["rows"]:
        name, cells = row["name"], row["cells"]
        line = [name]
        for file, cell in zip(files, cells):
            against = cell and cell.get("against_first")
            if cell is None or "skipped" in cell:
                reason = "has none" if cell is None else f"skipped it: {cell['skipped']}"
                missing += f"  {name}: {file['label']} {reason}\n"
                line += ["–", ""]
            else:
                line += [words.duration(cell["median_s"]), half_width(cell)]
            if against:
                verdicts[against["verdict"]] += 1
                mark = ", noisy" if cell["noisy"] or cells[0]["noisy"] else ""
                line += [words.change(against["difference"]), p_text(against["adjusted_p"]), against["verdict"] + mark]
            elif file is not files[0]:
                line += [""] * 3
        noisy += any(cell and cell.get("noisy") for cell in cells)
        table.rows.append(line)
    counts = ", ".join(f"{verdicts[word]} {word}" for word in ("same", "faster", "slower", "inconclusive", "too few") if verdicts[word])
    text = "".join(f"{file['label']}  {file['path']}\n" for file in files) + differences(comparison)
    text += "\n" + table.text() + (f"\nNot compared\n{missing}" if missing else "")
    text += f"""
{rule['comparisons']} comparisons: {counts or 'none'}; {noisy} noisy
95 %: half the interval of the median, by order statistics (exact); noisy above {words.plain_percent(rule['noisy_above'], 0)}.
Verdicts by the Mann-Whitney U test, two-sided (exact without ties and with fewer than 50 repetitions), with Holm's
correction over all comparisons: at most {words.plain_percent(rule['error_rate'], 0)} chance of any false difference. \
Medians that differ by less than {words.plain_percent(rule['least_difference'], 0)} are the same.
"""
    if verdicts["inconclusive"]:
        text += "Inconclusive: a sample is noisy, and the medians differ by less than that and the noisy intervals together.\n"
    if verdicts["too few"]:
        text += (f"Too few repetitions for a verdict: so many comparisons need at least {rule['repetitions_needed']} a side "
                 "(--benchmark_repetitions).\n")
    return text


# ---- profiles ----

ACTIVATIONS_FIT, NOTHING_FITS = "*", "!"


def wrapped(text):
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def machine_table(comparison, title, rows):
    """A column by machine; `rows`: (name, its cells)."""
    table = Table([title, *(machine["name"] for machine in comparison["machines"])])
    for name, cells in rows:
        table.rows.append([name, *cells])
    return table.text()


def machines_text(comparison):
    rows = (("peak, TFLOP/s", "peak_tflops", 0), ("attention forward, TFLOP/s", "attention_forward_tflops", 0),
            ("attention backward, TFLOP/s", "attention_backward_tflops", 0),
            ("memory as kernels reach it, GB/s", "memory_gb_per_s", 0), ("memory, GB", "memory_gb", 0),
            ("p2p within a node, GB/s", "p2p_within_node_gb_per_s", 0),
            ("p2p between nodes, GB/s", "p2p_between_nodes_gb_per_s", 1), ("launch, µs", "kernel_overhead_us", 1),
            ("speed of compute during an all-reduce", "contention_compute", 2),
            ("speed of an all-reduce during compute", "contention_all_reduce", 2))
    text = machine_table(comparison, "machine", [
        (name, [words.plain(machine[key], digits) for machine in comparison["machines"]]) for name, key, digits in rows])
    for machine in comparison["machines"]:
        text += f"  {machine['name']}: {machine['accelerator']}; contention {machine['contention_source']}"
        if machine["fitted"]:
            text += f"; fitted {words.word(machine['fitted'])} (to {words.word(machine['fitted_to'])})"
        text += f"\n    of {machine['values']} values {len(machine['assumed'])} assumed, {len(machine['fitted'])} fitted"
        text += f"; assumed {words.word(machine['assumed'])}\n" if machine["assumed"] else "\n"
    return text


def gemm_text(comparison):
    rows = []
    for shape in comparison["gemm"]:
        for rate in shape["rates"]:
            of = "forward and backward" if rate["of"] == "layer" else rate["of"]
            cells = [f"{words.plain(tflops, 0)} ({words.plain_percent(share, 0)})"
                     for tflops, share in zip(rate["tflops"], rate["share_of_peak"])]
            rows.append((f"{shape['model']}, {shape['tokens']:.0f} tokens, TP{shape['tp']}, {of}", cells))
    return machine_table(comparison, "TFLOP/s of a layer's GEMMs (share of the peak)", rows)


def all_reduce_text(comparison):
    rows = []
    for message in comparison["all_reduce"]:
        cells = [f"{words.plain(seconds and 1e3 * seconds, 2)} ({words.plain(bandwidth, 0)})"
                 for seconds, bandwidth in zip(message["seconds"], message["bus_gb_per_s"])]
        rows.append((f"{message['bytes'] / 1e6:.1f} MB over {message['ranks']} GPUs", cells))
    return machine_table(comparison, "all-reduce, ms (bus bandwidth, GB/s)", rows)


def overlap_text(comparison):
    shares, exposed = [], []
    for layer in comparison["overlap"]:
        name = f"{layer['model']}, s {layer['seq']} × {layer['microbatch_size']}, TP{layer['tp']}"
        shares.append((name, map(words.plain_percent, layer["tp_communication_share"])))
        exposed.append((name, [f"{words.plain_percent(attn, 0)} | {words.plain_percent(mlp, 0)}" for attn, mlp in
                               zip(layer["exposed_behind_attn"], layer["exposed_behind_mlp"])]))
    # Where every all-reduce is shorter than its compute, the shape does not matter: one line is enough.
    if all(cells == exposed[0][1] for _, cells in exposed):
        exposed = [("every shape above", exposed[0][1])]
    return (machine_table(comparison, "all-reduces, share of a layer's forward, nothing overlapped", shares) + "\n" +
            machine_table(comparison, "an all-reduce, exposed share behind attn.F | mlp.F", exposed))


def throughput_cell(cell):
    if "refused" in cell:
        return "–"
    mark = {"all": " ", "activations": ACTIVATIONS_FIT, "nothing": NOTHING_FITS}[cell["fits"]]
    return words.plain(cell["throughput_samples_per_s"], 3) + mark


def throughput_text(comparison):
    names, gain = [machine["name"] for machine in comparison["machines"]], comparison["gain"]
    table, refused = Table(["samples/s", *names]), ""
    for line in comparison["throughput"]:
        where, gains = words.configuration(line["configuration"]), line["gains"]
        table.rows.append(where)
        for schedule in line["schedules"]:
            table.rows.append(["  " + schedule["schedule"], *map(throughput_cell, schedule["cells"])])
            refused += "".join(f"  {where}, {schedule['schedule']} on {name}: {cell['refused']}\n"
                               for name, cell in zip(names, schedule["cells"]) if "refused" in cell)
        # A blank where throughputs have their symbol.
        over_baseline, published = ([words.change(one[key]) + " " for one in gains]
                                    for key in ("over_baseline", "published_over_baseline"))
        over_best = [f"{words.change(one['over_best'])} ({one['best']}) " if one["best"] else "– " for one in gains]
        table.rows.append([f"  gain of {gain['of']} over {gain['over']}", *over_baseline])
        if any(one["band"] for one in gains):
            table.rows.append(["  each value alone to the ends of its range",
                       *(" to ".join(map(words.change, one["band"])) + " " if one["band"] else "– " for one in gains)])
        if any(one["best"] not in (None, gain["over"]) for one in gains):
            table.rows.append(["  over the best other", *over_best])
        if any(one["published_over_baseline"] is not None for one in gains):
            table.rows.append([f"  gain over {gain['over']}, published", *published])
    return (f"{table.text()}{ACTIVATIONS_FIT} the machine's memory holds the activations, but not weights, gradients and AdamW's "
            f"fp32 state beside them\n{NOTHING_FITS} it does not hold the activations alone\n"
            "A profile without ranges has no band, which is no certainty: see above how many of its values are assumed\n" +
            (f"Not simulated\n{refused}" if refused else ""))


def quantity_rows(quantity, name, alike):
    """Two lines: the mean over all orders, and each part alone."""
    is_gain = quantity["schedule"] is None

    def effect(part, key):
        value = quantity["parts"][part][key]
        return "–" if part in alike else words.points(value, 2) if is_gain else words.change(value / quantity["from"])

    ends = [words.change(quantity[key]) if is_gain else words.plain(quantity[key], 3) for key in ("from", "to")]
    return [[name, *ends, *(effect(part, "shapley") for part in PARTS)],
            ["  alone", "", "", *(effect(part, "alone") for part in PARTS)]]


def attribution_text(comparison):
    text, gain = "", comparison["gain"]
    for one in comparison["attribution"]:
        table, baseline = Table(["", one["from"], one["to"], *PARTS]), None
        for quantity in one["quantities"]:
            of = quantity["of"]
            if of == "gain_over_baseline":
                baseline = quantity
            elif of == "gain_over_best" and baseline and all(quantity[key] == baseline[key] for key in ("from", "parts")):
                continue  # the best other is the baseline itself
            name = (f"{quantity['schedule']}, samples/s" if of == "throughput" else
                    f"{gain['of']} over {gain['over'] if of == 'gain_over_baseline' else 'the best other'}")
            for row in quantity_rows(quantity, name, one["alike"]):
                table.rows.append(row)
        said, published = one["words"], [one["published_gain_to"], one["published_gain_from"]]
        if None not in published:
            said += " Published: {} and {}.".format(*map(words.plain_percent, published))
        where = words.configuration(one["configuration"])
        text += f"\n{where}: from {one['from']} to {one['to']}\n{table.text()}{wrapped(said)}"
    return text


def show_profiles(comparison):
    text = "Machines side by side. All of it is simulated: what the profiles say, by the cost model and the simulator\n\n"
    text += "\n".join(part(comparison) for part in (machines_text, gemm_text, all_reduce_text, overlap_text))
    text += f"\nLargest m of {words.word(comparison['scenarios'])}\n{throughput_text(comparison)}"
    rates = {(machine["contention_compute"], machine["contention_all_reduce"]) for machine in comparison["machines"]}
    if len(rates) == 1:
        text += "\n" + wrapped("Contention is the same in every profile here, so that no machine overlaps better than another: "
                               "whether it was measured there is said under the first table.")
    if comparison["attribution"]:
        text += "\n" + wrapped("Which property makes the difference: the first machine's are replaced by the other's. Per part "
                               "the mean over all orders of replacing them (Shapley; the parts add up), below it that part "
                               "alone. Gains in points, throughputs in % of the first's")
        text += "".join(f"  {part}: {name}\n" for part, name in PARTS.items()) + attribution_text(comparison)
    return text


SHOW = {"records": show_records, "benchmarks": show_benchmarks, "profiles": show_profiles}
