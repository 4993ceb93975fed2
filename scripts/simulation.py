"""Shared by the scripts that simulate."""

import argparse
import itertools
import json
import math
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILT = [ROOT / f"build/{preset}/bin/stp" for preset in ("release", "simulate", "ci")]
STP = str(next((path for path in BUILT if path.exists()), BUILT[0]))


def refuse(text):
    """Ends the script, whose arguments are at fault."""
    print(f"{pathlib.Path(sys.argv[0]).name}: {text}", file=sys.stderr)
    sys.exit(2)


def parser(text, scenario=None):
    """The parser of a script's arguments, described by its documentation's first line, with --stp and, of a default, --scenario."""
    made = argparse.ArgumentParser(description=text.split("\n", maxsplit=1)[0])
    made.add_argument("--stp", default=STP)
    if scenario:
        made.add_argument("--scenario", default=scenario)
    return made


def parse_with_file(arguments):
    """The arguments, parsed, with the file that the script writes (--json) or compares with what it would write (--check)."""
    task = arguments.add_mutually_exclusive_group(required=True)
    task.add_argument("--json", metavar="FILE", help="write all of it to FILE")
    task.add_argument("--check", metavar="FILE", help="exit with 1 unless FILE is what --json would write")
    return arguments.parse_args()


def write_or_check(options, content, key, tolerance):
    """Does what parse_with_file()'s options ask; `key` as of write_rows()."""
    if options.json:
        write_rows(options.json, content, key)
    elif not same(content, read(options.check), tolerance):
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {options.check} is of another model; run scripts/update_reference.sh")


def same(a, b, tolerance):
    """Whether what two files of JSON hold is equal, numbers up to rounding."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key], tolerance) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(one, other, tolerance) for one, other in zip(a, b))
    if isinstance(a, float) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=tolerance)
    return a == b


def read(path):
    try:
        return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return refuse(f"{path}: cannot be read: {getattr(error, 'strerror', error)}; name another file")


def write_rows(path, content, key):
    """Writes an object with a line for each of its fields, and for each element of its list `key`, which is the last."""
    fields = "".join(f" {json.dumps(name)}: {json.dumps(value)},\n" for name, value in content.items() if name != key)
    rows = ",\n".join("  " + json.dumps(row) for row in content[key])
    pathlib.Path(path).write_text(f'{{\n{fields} "{key}": [\n{rows}\n ]\n}}\n', encoding="utf-8")


def read_configurations(name):
    """A scenario of the suite with all configurations that `vary` stands for (docs/scenarios.md)."""
    scenario = read(ROOT / f"scenarios/{name}.json")
    scenario["configurations"] = [
        {key: value for part in (entry, *choice) for key, value in part.items() if key != "vary"}
        for entry in scenario["configurations"] for choice in itertools.product(*entry.get("vary", []))]  # fmt: skip
    return scenario


def read_scenario(name, *parts):
    """read_configurations(), and where the profile of the scenario's cluster is. `parts`: what its "compare" must have."""
    scenario = read_configurations(name)
    lacking = [f"compare.{part}" for part in parts if part not in scenario.get("compare", {})] + ["cluster"] * ("cluster" not in scenario)
    if lacking:
        refuse(f"scenario {name} has no {lacking[0]}; name another with --scenario")
    return scenario, ROOT / f"profiles/{scenario['cluster']}.json"


def run(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        refuse(f"{command[0]}: {error.strerror}; build it (cmake --preset release; cmake --build --preset release), or name another with --stp")
    if done.returncode != 0:
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def write_scenario(folder, scenario, profile=None):
    """Writes a scenario into a folder, on `profile` in place of its cluster if one is given; returns its path."""
    if profile:
        scenario = {**scenario, "cluster": "profile.json"}
        (pathlib.Path(folder) / "profile.json").write_text(json.dumps(profile), encoding="utf-8")
    path = pathlib.Path(folder) / "scenario.json"
    path.write_text(json.dumps(scenario), encoding="utf-8")
    return str(path)


def reproduce(stp, scenario, profile):
    """The summary's line of a scenario on a profile, and its rows beside published ones."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        run([stp, "reproduce", write_scenario(folder, scenario, profile), "--no-plots", "--out", str(out)])
        [line] = read(out / "summary.json")["experiments"]
        return line, read(out / f"{line['id']}.json")["rows"]


simulated = itertools.count(1)


def simulate(stp, scenario, profile=None):
    """The record of a scenario. A terminal shows meanwhile how many there were."""
    shown = sys.stderr.isatty()
    if shown:
        print(f"\rsimulation {next(simulated)}", end="", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        record = json.loads(run([stp, "simulate", write_scenario(folder, scenario, profile), "--json", "-"]))
    if shown:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return record
