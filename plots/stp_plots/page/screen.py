"""Comparisons on a terminal. None is shown as "–"."""

import collections
import itertools
import math
import shutil
import textwrap

from stp_plots import words
from stp_plots.judge import overlapped
from stp_plots.judge.compare_profiles import PARTS
from stp_plots.judge.compare_records import JOB
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
    """Columns that say nothing are left out: tokens of a GPU where the jobs are equal, verdicts where there is none."""
    other_job = any(one["field"] in JOB for one in comparison["differs"])
    judged = comparison["rule"]["comparisons"] > 0

    def lines_of(row):
        present = [(file, cell) for file, cell in zip(comparison["files"], row["cells"]) if cell]
        lines = []
        for file, cell in present if len(present) > 1 else []:
            to_first = cell["against_first"]
            throughput, tokens, step, memory = (words.percent(to_first[key]) if to_first else ""
                                                for key in ("throughput", "tokens_per_s_per_gpu", "step_time", "peak_memory"))
            lines.append(["" if lines else "  " + schedule_of(row), f"{file['label']} {file['evidence']}",
                          words.plain(cell["throughput_samples_per_s"], 3), throughput,
                          *([words.plain(cell["tokens_per_s_per_gpu"], 0), tokens] if other_job else []), step_text(cell), step,
                          *([(to_first and to_first["verdict"]) or ""] if judged else []), words.plain_percent(cell["mfu"]),
                          words.plain_percent(cell["pp_bubble_share"]), words.plain_percent(cell["tp_bubble_share"]),
                          words.plain(cell["peak_memory_gb"], 2), memory, words.plain(cell["peak_total_gb"], 1), cell["fits"] or ""])
        return lines

    return table_of(comparison, ["  schedule", "file", "samples/s", "vs A", *(["tokens/s/GPU", "vs A"] if other_job else []), "step", "vs A",
                                 *(["verdict"] if judged else []), "MFU", "PP bubble", "TP bubble", "GB", "vs A", "all, GB", "fits"], lines_of)


def predictions_text(comparison, errors):
    labels = [file["label"] for file in comparison["files"]]
    # The one of the two that is not the first has the predictions.
    place = max(labels.index(errors["predicted_by"]), labels.index(errors["actual"]))

    def lines_of(row):
        one = row["cells"][place] and row["cells"][place]["prediction"]
        return [["  " + schedule_of(row), words.duration(one["predicted_step_s"]), words.duration(one["actual_step_s"]),
                 words.percent(one["step_error"], 2), words.word(one["within_interval"]),
                 words.percent(one["peak_memory_error"])]] if one else []

    text = (f"\nPrediction errors: {errors['predicted_by']} ({errors['predicted_evidence']}) of what {errors['actual']} has "
            f"({errors['actual_evidence']})\n")
    text += table_of(comparison, ["  schedule", "predicted step", "actual step", "error", "in its interval", "memory error"],
                     lines_of)
    if errors["step_error_mean"] is not None:
        text += (f"Step time: mean absolute error {words.plain_percent(errors['step_error_mean'], 2)}, largest error "
                 f"{words.percent(errors['step_error_worst'], 2)}; within the 95 % interval of the median in "
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
    text += "\nBubbles are those of the rank that computes most; GB is peak activation memory; all is of the fullest GPU."
    rule = comparison["rule"]
    if rule["comparisons"]:
        text += (" In brackets: 95 % interval of the median (order\nstatistics). Verdicts are on the step, by the Mann-Whitney "
                 f"U test with Holm's correction over {rule['comparisons']} comparisons at {words.plain_percent(rule['error_rate'], 0)}; "
                 f"less than {words.plain_percent(rule['least_difference'], 0)} is the same, or inconclusive where an interval "
                 f"is over ±{words.plain_percent(rule['noisy_above'], 0)}.")
    return text + "\n"


# ---- benchmarks ----


OVERSUBSCRIBED = "!"


def half_width(cell):
    """Half the interval of the median, relative."""
    if not cell["interval_s"] or cell["median_s"] <= 0:
        return "–"
    low, high = cell["interval_s"]
    return f"±{words.plain_percent((high - low) / 2 / cell['median_s'])}"


def p_text(p):
    return f"{p:.3f}" if p >= 0.001 else f"{p:.0e}"


def beside_text(files):
    """A table of `files`, (label, machine, its overlaps) each, in the same columns, and a sentence for each machine."""
    table = Table(["  ranks", "MiB", "GEMM µs", "AR µs", "bus GB/s", "both µs", "GEMM ×", "AR ×", "hidden %", "gain %", "of %", ""])
    lines = [(row, label) for label, _, rows in files for row in rows]
    lines.sort(key=lambda line: (line[0].place, line[1]))
    for (name, gemm), some in itertools.groupby(lines, lambda line: (line[0].name, line[0].gemm)):
        table.rows.append(f"{name}, {' × '.join(map(str, gemm))}")
        for row, label in some:
            first = f"  {row.ranks}" + (OVERSUBSCRIBED if row.shared else "") + (f" {row.setting}" if row.setting else "")
            times = [words.plain(1e6 * seconds, 0 if seconds >= 1e-3 else 1) for seconds in (row.gemm_s, row.reduce_s, row.together_s)]
            table.rows.append([
                first + (f" {label}" if label else ""), f"{row.size / 2**20:.4g}", *times[:2],
                words.magnitude(row.bus_bytes_per_s / 1e9), times[2], f"{row.gemm_factor:.2f}", f"{row.reduce_factor:.2f}",
                *(str(round(100 * share)) if row.known else words.NONE for share in (row.hidden, row.gain)), str(round(100 * row.most_gain)),
                "noisy" if row.noisy else "" if row.interval_s else "too few"])
    if not lines:
        return ""
    legend = f"{OVERSUBSCRIBED}: more ranks than cores. " if any(row.shared for row, _ in lines) else ""
    legend += (f"MiB: of the all-reduce. ×: time beside the other / alone. Hidden: share of the all-reduce ({words.NONE}: known to no better "
               f"than ±{words.plain_percent(overlapped.UNKNOWN_ABOVE, 0)}). Gain: over one after the other, of what hiding the shorter whole "
               "would gain (docs/microbench.md).")
    said = [f"{label}  " * bool(label) + overlapped.answer(machine, rows) for label, machine, rows in files if rows]
    legend, *said = (textwrap.fill(paragraph, 100) for paragraph in (legend, *said))
    return "\n".join(("A GEMM and an all-reduce (AR), alone and both at once", table.text() + legend, "", *said, ""))


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
                line += [words.percent(against["difference"]), p_text(against["adjusted_p"]), against["verdict"] + mark]
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
    beside = beside_text([(file["label"], overlapped.machine_of(file["context"]), overlapped.overlaps(
        {row["name"]: row["cells"][i] for row in comparison["rows"]})) for i, file in enumerate(files)])
    if verdicts["inconclusive"]:
        text += "Inconclusive: a sample is noisy, and the medians differ by less than that and the noisy intervals together.\n"
    if verdicts["too few"]:
        text += (f"Too few repetitions for a verdict: so many comparisons need at least {rule['repetitions_needed']} a side "
                 "(--benchmark_repetitions).\n")
    return text + (f"\n{beside}" if beside else "")


# ---- profiles ----

ACTIVATIONS_FIT, NOTHING_FITS = "*", "!"


def wrapped(text, first="", others=""):
    """`text` in lines of the terminal's width, at most 120; `first` and `others` begin them."""
    width = min(120, shutil.get_terminal_size((120, 24)).columns)
    return textwrap.fill(text, width, initial_indent=first, subsequent_indent=others, break_long_words=False,
                         break_on_hyphens=False) + "\n"


def machine_table(comparison, title, rows):
    """A column by machine; `rows`: (name, its cells)."""
    table = Table([title, *(machine["name"] for machine in comparison["machines"])])
    for name, cells in rows:
        table.rows.append([name, *cells])
    return table.text()


def machines_text(comparison):
    rows = (("peak, TFLOP/s", "peak_tflops", 0), ("attention forward, TFLOP/s", "attention_forward_tflops", 0),
            ("attention backward, TFLOP/s", "attention_backward_tflops", 0),
            ("memory as kernels reach it, GB/s", "memory_gb_per_s", 0), ("memory, GB", "memory_gb", 1),
            ("p2p within a node, GB/s", "p2p_within_node_gb_per_s", 0),
            ("p2p between nodes, GB/s", "p2p_between_nodes_gb_per_s", 1), ("launch, µs", "kernel_overhead_us", 1),
            ("speed of compute during an all-reduce", "contention_compute", 2),
            ("speed of an all-reduce during compute", "contention_all_reduce", 2))
    text = machine_table(comparison, "machine", [
        (name, [words.plain(machine[key], digits) for machine in comparison["machines"]]) for name, key, digits in rows])
    for machine in comparison["machines"]:
        said = f"{machine['name']}: {machine['accelerator']}; contention {machine['contention_source']}"
        if machine["fitted"]:
            said += f"; fitted {words.word(machine['fitted'])} (to {words.word(machine['fitted_to'])})"
        text += wrapped(said, "  ", "    ")
        said = f"of {machine['values']} values {len(machine['assumed'])} assumed, {len(machine['fitted'])} fitted"
        text += wrapped(said + (f"; assumed {words.word(machine['assumed'])}" if machine["assumed"] else ""), "    ", "    ")
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


def span(ends):
    return " to ".join(words.plain(end, 2) for end in ends)


def band_text(one, times=""):
    """A band that no value makes would look like certainty."""
    return times + span(one["band"]) if one["variations"] else "no band: no value has a range"


def speed_line(one, first):
    """How fast a machine is."""
    count, left = one["configurations"], one["of"] - one["configurations"]
    if not count:
        return f"{one['machine']}: not compared with {first}: no configuration fits on both\n"
    fit = f"; {left} do{'' if left > 1 else 'es'} not fit on {' or '.join(one['too_small']) or 'both'}" if left else ""
    return wrapped(f"{one['machine']}: {words.plain(one['times'], 2)} times as fast as {first} ({band_text(one)}; simulated, "
                   f"{words.count(count, 'configuration')}{fit})", "", "  ")


def cause_line(one):
    """The groups of properties that make the difference: two with it, one against it."""
    effects = sorted(one["parts"].items(), key=lambda effect: -abs(math.log(effect[1])))
    effects = [(PARTS[part], times) for part, times in effects if abs(times - 1) >= 0.005]
    with_it = [f"{name} (×{times:.2f})" for name, times in effects if (times > 1) == (one["times"] > 1)]
    against = [f"{name} {'gives' if times > 1 else 'takes'} ×{times:.2f}" for name, times in effects if (times > 1) != (one["times"] > 1)]
    said = [f"because of {' and '.join(with_it[:2])}"] if with_it else [] if against else ["no property makes a difference"]
    return wrapped("; ".join(said + against[:1]), "  ", "    ")


def gains_line(one, gain):
    """The gain that the comparison asks for, by TP; "" if it is not simulated."""
    if not one["gains"]:
        return ""
    said = []
    for at in one["gains"]:
        ends = at["band"] and "–".join(words.plain(100 * end, 1) for end in at["band"])
        said.append(f"TP{at['tp']} " + (f"{words.percent(at['mean'])} ({ends})" if ends else "none that fits"))
    return wrapped(f"{gain['of']} over {gain['over']}: {', '.join(said)}", "  ", "    ")


def basis_line(one, own):
    """What a machine's figures rest on; `own`: of the first, whose throughput is not compared."""
    text = f"{one['assumed']} of {one['values']} values assumed, {one['fitted']} fitted, {one['sourced']} sourced"
    if one["band"]:
        known, whole = span(one["band_without_assumed"]), span(one["band"])
        if own:
            text += f"; throughput {band_text(one, '×')}"
        elif len({*known.split(" to ")}) > 1:
            text += f"; {known} without the assumed"
        elif known != whole:
            text += "; the band is of the assumed alone: the ranges of the others change nothing that is shown"
    for most in one["variations"][:1]:
        of = "" if one["machine"] in most["machines"] else f" of {most['machines'][0]}"
        text += f"; {most['value']}{of} alone {'×' if own else ''}{span(sorted(one['times'] * end for end in most['factors']))}"
    published = one["published"]
    if published["rows"]:
        text += (f"; {words.count(published['rows'], 'published throughput')}{', fitted ones too,' if one['fitted'] else ''} within {words.plain_percent(published['error_mean'])} "
                 "on average")
    return wrapped((f"{one['machine']}: " if own else "  ") + text, "", "    ")


def answers_text(comparison):
    """What a machine is worth, before all figures."""
    first, *others = comparison["answers"]
    text = basis_line(first, True) + gains_line(first, comparison["gain"])
    for one in others:
        text += speed_line(one, first["machine"]) + (cause_line(one) if one["configurations"] else "")
        text += gains_line(one, comparison["gain"]) + basis_line(one, False)
    return text + basis_of_all(comparison)


def basis_of_all(comparison):
    """What all machines' figures have in common."""
    text = wrapped(comparison["kernels"])
    if any(len(each["machines"]) > 1 for one in comparison["answers"] for each in one["variations"]):
        text += wrapped("A value that is uncertain and equal on both machines counts as one unknown in their ratio (shared unknowns cancel)")
    shares = [f"{name} {profile['gemm_sustained']['value']}" for name, profile in comparison["clusters"].items() if "gemm_sustained" in profile]
    if shares and comparison["at_best_rate"]:
        text += wrapped("GEMMs are at their best rate, not at what a power limit leaves in trainings, as profiles have no gemm_sustained: "
                        f"{words.word(comparison['at_best_rate'])} (others: {words.word(shares)})")
    if comparison["without_fixed_memory"]:
        text += wrapped("These profiles give no fixed_memory_gb, so it counts as 0 on all machines: "
                        f"{words.word(comparison['without_fixed_memory'])}")
    return text


def throughput_cell(cell):
    if "refused" in cell:
        return "–"
    mark = {"all": " ", "activations": ACTIVATIONS_FIT, "nothing": NOTHING_FITS}[cell["fits"]]
    return words.plain(cell["throughput_samples_per_s"], 3) + mark


def band_row(name, bands, scale=1):
    """Bands by machine."""
    return [name, *("– " if one is None else "–".join(words.plain(scale * end, 2 if scale * one[1] < 10 else 1) for end in one)
                    for one in bands)]


def throughput_text(comparison):
    names, gain = [machine["name"] for machine in comparison["machines"]], comparison["gain"]
    table, refused = Table(["samples/s", *names]), ""
    for line in comparison["throughput"]:
        where, gains = words.configuration(line["configuration"]), line["gains"]
        table.rows.append(where)
        for schedule in line["schedules"]:
            table.rows.append(["  " + schedule["schedule"], *map(throughput_cell, schedule["cells"])])
            table.rows.append(band_row("    band", [cell.get("throughput_band") for cell in schedule["cells"]]))
            refused += "".join(f"  {where}, {schedule['schedule']} on {name}: {cell['refused']}\n"
                               for name, cell in zip(names, schedule["cells"]) if "refused" in cell)
        # A blank where throughputs have their symbol.
        over_baseline, published = ([words.percent(one[key]) + " " for one in gains]
                                    for key in ("over_baseline", "published_over_baseline"))
        table.rows.append([f"  {gain['of']} over {gain['over']}", *over_baseline])
        if any(one["band"] for one in gains):
            table.rows.append(band_row("    band, %", [one["band"] for one in gains], 100))
        if any(one["published_over_baseline"] is not None for one in gains):
            table.rows.append(["    published", *published])
    return (f"{table.text()}{ACTIVATIONS_FIT} the machine's memory holds the activations, but not weights, gradients and AdamW's "
            f"fp32 state beside them\n{NOTHING_FITS} it does not hold the activations alone\n"
            "band: every uncertain value alone to its ends (docs/compare.md), the root of the sum of squares\n" +
            (f"Not simulated\n{refused}" if refused else ""))


def quantity_rows(quantity, name, alike):
    """Two lines: the mean over all orders, and each part alone."""
    is_gain = quantity["schedule"] is None

    def effect(part, key):
        value = quantity["parts"][part][key]
        return "–" if part in alike else words.signed(100 * value, 2) if is_gain else words.percent(value / quantity["from"])

    ends = [words.percent(quantity[key]) if is_gain else words.plain(quantity[key], 3) for key in ("from", "to")]
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


def show_profiles(comparison, details):
    text = answers_text(comparison)
    text += "\nMachines side by side. All of it is simulated: what the profiles say, by the cost model and the simulator\n\n"
    text += "\n".join(part(comparison) for part in ((machines_text, gemm_text, all_reduce_text, overlap_text) if details else
                                                    (machines_text, all_reduce_text)))
    text += f"\nLargest m of {words.word(comparison['scenarios'])}\n{throughput_text(comparison)}"
    rates = {(machine["contention_compute"], machine["contention_all_reduce"]) for machine in comparison["machines"]}
    if len(rates) == 1:
        text += "\n" + wrapped("All profiles here have the same contention, so no machine overlaps better than another. The lines under the first "
                               "table say on which machine it was measured.")
    if not details:
        text += "\n" + wrapped("GEMMs and overlap of each shape, and which property makes which part of a difference: --details")
    elif comparison["attribution"]:
        text += "\n" + wrapped("Which property makes the difference: the first machine's are replaced by the other's. Per part "
                               "the mean over all orders of replacing them (Shapley; the parts add up), below it that part "
                               "alone. Gains in points, throughputs in % of the first's")
        text += "".join(f"  {part}: {name}\n" for part, name in PARTS.items()) + attribution_text(comparison)
    return text


def show(comparison, details=False):
    """What the terminal shows; `details`: of profiles, all tables."""
    if comparison["kind"] == "profiles":
        return show_profiles(comparison, details)
    return {"records": show_records, "benchmarks": show_benchmarks}[comparison["kind"]](comparison)
