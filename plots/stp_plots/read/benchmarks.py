"""Files of Google Benchmark (--benchmark_format=json)."""

from dataclasses import dataclass, field

from stp_plots.files import Fields

KIND = "a file of Google Benchmark"
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
LARGEST = 1e15

# Fields of an iteration that are not counters.
OWN_FIELDS = {"name", "family_index", "per_family_instance_index", "run_name", "run_type", "repetitions", "repetition_index",
              "threads", "iterations", "real_time", "cpu_time", "time_unit", "label", "error_occurred", "error_message",
              "skipped", "skip_message"}


@dataclass
class Benchmark:
    order: tuple  # of registration
    seconds: list = field(default_factory=list)  # real time of an iteration, by repetition
    counters: dict = field(default_factory=dict)  # user counters, by repetition
    problem: str = ""  # why there is no time: an error, or skipped


@dataclass
class BenchmarkFile:
    path: str
    context: dict  # of the machine and the program, as written
    rows: dict  # benchmarks by name, in the order of registration, however they were interleaved


def recognises(content):
    return isinstance(content, dict) and "benchmarks" in content and "context" in content


def problem_of(one):
    """Why an iteration has no time; "" if it has. Before version 1.8 errors, from then on skips."""
    for flag, message, word in (("error_occurred", "error_message", "failed"), ("skipped", "skip_message", "skipped")):
        if one.get(flag):
            return str(one.get(message) or word)
    return ""


def read(content, path):
    """InputError that names file, field and remedy: aggregates alone, an unknown unit, a time that is not a number."""
    fields = Fields(content, path)
    context, benchmarks = fields.object("context"), fields.array("benchmarks")
    rows = {}
    for i, one in enumerate(benchmarks):
        given = Fields(one, path, f"benchmarks[{i}]")
        if given.string("run_type", "iteration") != "iteration":
            continue
        name = given.string("run_name") if "run_name" in one else given.string("name")
        order = (given.number("family_index", LARGEST, 0), given.number("per_family_instance_index", LARGEST, 0))
        row = rows.setdefault(name, Benchmark(order))
        if problem := problem_of(one):
            row.problem = problem
            continue
        unit = given.string("time_unit")
        if unit not in SECONDS:
            raise given.error("time_unit", f'"{unit}" is no unit of Google Benchmark\'s', "write ns, us, ms or s")
        row.seconds.append(given.number("real_time", LARGEST) * SECONDS[unit])
        for key, value in one.items():
            if key not in OWN_FIELDS and isinstance(value, (int, float)) and not isinstance(value, bool):
                row.counters.setdefault(key, []).append(float(value))
    if not rows:
        if not benchmarks:
            raise fields.error("benchmarks", "is empty", "let the filter match something")
        raise fields.error("benchmarks", "holds aggregates alone, and medians and tests need the repetitions",
                           "run it without --benchmark_report_aggregates_only")
    return BenchmarkFile(path, context, dict(sorted(rows.items(), key=lambda row: row[1].order)))
