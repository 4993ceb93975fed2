"""Checks the source against docs/architecture.md, section 3: a module includes only what its CMakeLists.txt links, some modules
know nothing of some things, and folders of plots/stp_plots use only those before them. Reads the source tree that it lies in;
prints a line per offence, and exits with 1 if there is one."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def linked_modules():
    """By module, the modules that it may include: those that its stp_add_library() links, and what these link."""
    direct = {}
    for path in [*ROOT.glob("lib/stp/*/CMakeLists.txt"), ROOT / "baselines/CMakeLists.txt"]:
        text = path.read_text(encoding="utf-8")
        call = re.search(r"stp_add_library\((\w+)([^)]*)\)", re.sub(r"#.*", "", re.sub(r"\$\{\w+\}", "", text)))
        direct[call[1]] = set(re.findall(r"stp::(\w+)", call[2]))
    direct["backends"] |= {"cuda"} & direct.keys()  # where it is built
    closed = {}

    def close(module):
        if module not in closed:
            closed[module] = direct[module].union(*(close(other) for other in direct[module]))
        return closed[module]

    return {module: close(module) for module in direct}


MAY_INCLUDE = linked_modules()
MAY_SEE_VERSION = {"report", "driver"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)

# The engine and the executor interpret any program: no schedule may be named there, not even in a comment.
NAMELESS_MODULES = ("simulate", "runtime")
NEVER_NAMED = ("gpipe", "zb", "v-half", "v-min", "interleaved", "dualpipe", "chimera", "hanayo")
# A program has no seconds: it says what is done, not how long that takes.
TIME = re.compile(r"\bseconds?\b|\b\w*[a-z]_s\b|\bchrono\b|\bduration\b|\bflops\b|\bbandwidth\b|\blatency\w*", re.IGNORECASE)
# Folders of plots/stp_plots: each uses only those before it.
PYTHON_LAYERS = ("read", "judge", "draw", "page")
# Paths of one machine. Written in two parts, so that this file does not hold what it looks for.
MACHINE_PATH = re.compile(r"(?<![\w.\-/}])/(?:" + "|".join(("work", "root", "home", "Users")) + r")/[\w.]")

offences = []


def offend(path, text, position, why):
    line = text.count("\n", 0, position) + 1
    offences.append(f"{path.relative_to(ROOT)}:{line}: {why}")


def without_comments(text):
    """The text with its comments blanked: lines stay where they are. Strings are left alone."""
    token = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
    blank = lambda found: found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0])
    return token.sub(blank, text)


def module_of(path):
    parts = path.relative_to(ROOT).parts
    return parts[2] if parts[0] == "lib" else parts[0]


def check_includes(path, text):
    module = module_of(path)
    if module != "driver" and module not in MAY_INCLUDE:
        offend(path, text, 0, f"{module} has no CMakeLists.txt with stp_add_library()")
        return
    for found in INCLUDE.finditer(text):
        bracket, name = found[1], found[2]
        parts = name.split("/")
        if name == "stp/version.h":
            if module not in MAY_SEE_VERSION:
                offend(path, text, found.start(), f"{module} includes stp/version.h")
        elif parts[0] in ("stp", "baselines"):
            other = parts[1] if parts[0] == "stp" else parts[0]
            if module != "driver" and other != module and other not in MAY_INCLUDE[module]:
                allowed = ", ".join(sorted(MAY_INCLUDE[module])) or "nothing"
                offend(path, text, found.start(), f"{module} includes {name}, but links {allowed}")
            if bracket == "<":
                offend(path, text, found.start(), f"write \"{name}\"")
        elif name.startswith("support/") and path.name.endswith("_test.cc"):
            continue  # tests/support
        elif bracket == '"' and module != "driver":
            offend(path, text, found.start(), f'write "stp/{module}/{name}", as it is installed')


def schedule_names():
    files = [*ROOT.glob("lib/stp/schedule/stp*.cc"), *ROOT.glob("baselines/*.cc")]
    names = {found for path in files for found in re.findall(r'\.name = "([a-z0-9-]+)"', path.read_text(encoding="utf-8"))}
    names |= {path.stem for path in files if not path.stem.endswith("_test")}
    assert {"stp", "1f1b", "1f1b-i"} <= names, names
    return names | set(NEVER_NAMED)


def check_nameless(path, text, names):
    # "stp" is also the namespace and the folder of the headers.
    bare = re.sub(r"namespace stp\b|\bstp::|stp/|\bSTP_[A-Z_]+", lambda found: " " * len(found[0]), text)
    for name in sorted(names):
        for found in re.finditer(r"(?<![\w-])" + re.escape(name) + r"(?![\w-])", bare, re.IGNORECASE):
            offend(path, text, found.start(), f"names the schedule {name}; {module_of(path)} must work for any")


def check_timeless(path, text):
    for found in TIME.finditer(without_comments(text)):
        offend(path, text, found.start(), f"\"{found[0]}\": lib/stp/program knows nothing of time")


def check_python():
    for path in sorted((ROOT / "plots/stp_plots").rglob("*.py")):
        text, parts = path.read_text(encoding="utf-8"), path.relative_to(ROOT / "plots/stp_plots").parts
        above = PYTHON_LAYERS[PYTHON_LAYERS.index(parts[0]) + 1 :] if len(parts) > 1 else PYTHON_LAYERS
        for found in re.finditer(r"^\s*(?:from|import) stp_plots\.(\w+)", text, re.MULTILINE):
            if found[1] in above:
                offend(path, text, found.start(1), f"{parts[0]} uses {found[1]}")


def all_files():
    """Files that git tracks or would track; without git, all but hidden folders and builds."""
    try:
        listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "-co", "--exclude-standard"], capture_output=True, check=True)
        paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        hidden = lambda path: any(part.startswith(".") or part in ("build", "runs", "__pycache__") for part in path.relative_to(ROOT).parts)
        paths = [path for path in ROOT.rglob("*") if not hidden(path)]
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def check_machine_paths(path):
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return  # not text
    for found in MACHINE_PATH.finditer(text):
        offend(path, text, found.start(), f"\"{found[0]}…\" is a path of one machine")


def main():
    sources = [path for top in ("lib", "baselines", "driver") for path in sorted((ROOT / top).rglob("*")) if path.suffix in (".cc", ".h", ".cu", ".in")]
    assert len(sources) > 30, f"only {len(sources)} sources below {ROOT}"
    names = schedule_names()
    for path in sources:
        text = path.read_text(encoding="utf-8")
        check_includes(path, text)
        if path.name.endswith("_test.cc"):
            continue
        if path.suffix == ".h" and "#pragma once" not in text:
            offend(path, text, 0, "lacks #pragma once")
        if module_of(path) in NAMELESS_MODULES:
            check_nameless(path, text, names)
        if module_of(path) == "program":
            check_timeless(path, text)
    check_python()
    files = all_files()
    for path in files:
        check_machine_paths(path)
    print("\n".join(offences) or f"{len(sources)} sources and {len(files)} files: no offence")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
