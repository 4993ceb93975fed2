"""Reads a result folder: summary.json, the record of each of its experiments, the timelines."""

import json
from pathlib import Path

from .records import ReportError, Scenario
from .sensitivity import Sensitivity

KEPT = Path(__file__).resolve().parents[2] / "results/reference/sensitivity"


def _read(path):
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ReportError(f"{path}: cannot be read ({error.strerror})") from None


def _read_json(path):
    try:
        content = json.loads(_read(path))
    except ValueError as error:
        raise ReportError(f"{path}: is not JSON ({error})") from None
    if not isinstance(content, dict):
        raise ReportError(f"{path}: is not a JSON object")
    return content


def read_folder(folder):
    """The scenarios of a result folder, in the summary's order."""
    folder = Path(folder)
    if not (folder / "summary.json").is_file():
        raise ReportError(f"{folder}: is no result folder, it has no summary.json")
    lines = _read_json(folder / "summary.json").get("experiments")
    if not isinstance(lines, list) or not all(isinstance(line, dict) and line.get("id") for line in lines):
        raise ReportError(f"{folder / 'summary.json'}: has no list of experiments with an id each")
    scenarios = []
    for line in lines:
        path = folder / f"{line['id']}.json"
        scenarios.append(Scenario(line, _read_json(path), path))
    for scenario in scenarios:
        scenario.sensitivity = _sensitivity(folder, scenario)
    # A timeline belongs to the longest id that its name begins with.
    for path in sorted(folder.glob("timeline-*.svg")):
        owners = [s for s in scenarios if path.name.startswith(f"timeline-{s.id}-")]
        if owners:
            owner = max(owners, key=lambda scenario: len(scenario.id))
            owner.timelines.append((path.name, _read(path)))
    for scenario in scenarios:
        scenario.timelines.sort(key=lambda timeline: _place(scenario, timeline[0]))
    return scenarios


def _sensitivity(folder, scenario):
    """That of the folder, or else the one that is kept, if it is of these very predictions."""
    for path in (folder / f"sensitivity-{scenario.id}.json", KEPT / f"{scenario.id}.json"):
        if path.is_file():
            sensitivity = Sensitivity(_read_json(path))
            if sensitivity.fits(scenario):
                return sensitivity
    return None


def _place(scenario, name):
    """Timelines come in the order of the schedules, as everything else does."""
    word = name.removeprefix(f"timeline-{scenario.id}-")
    matches = [schedule for schedule in scenario.schedules if word.startswith(schedule + "-")]
    return scenario.schedules.index(max(matches, key=len)) if matches else len(scenario.schedules)
