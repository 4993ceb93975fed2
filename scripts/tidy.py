#!/usr/bin/env python3
"""clang-tidy over the sources of the product, as the unity files of a build folder include them.

    scripts/tidy.py BUILD_FOLDER

clang-tidy looks at every header again for each file, so several unity files are checked as one. If something is found,
or names in them clash, each file is checked alone, and that result counts. Kernels are left out: clang 14 does not know
the CUDA of nvcc.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

TOGETHER = 6
HEADER_FILTER = f"{re.escape(str(pathlib.Path(__file__).resolve().parents[1]))}/(lib|baselines|driver|microbench)/.*"


def clang_tidy(folder, sources):
    options = ["--quiet", "--extra-arg=-Qunused-arguments", "--checks=-bugprone-suspicious-include"]
    words = ["clang-tidy", "-p", folder, *options, f"--header-filter={HEADER_FILTER}", *sources]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def definitions_and_folders(words):
    """The options of a compile command that another command may have, too: each with its argument."""
    for word, following in zip(words, words[1:]):
        if word == "-isystem":
            yield (word, following)
        elif word.startswith(("-D", "-I")):
            yield (word,)


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    of_product = re.compile(r"(lib|baselines|driver|microbench)/(?!.*_test\.dir/).*/Unity/\w+\.cxx$")
    units = {command["file"]: shlex.split(command["command"])
             for command in sorted(commands, key=lambda command: command["file"])
             if of_product.match(os.path.relpath(command["file"], build))}
    if not units:
        sys.exit(f"tidy: {build} has no unity files; configure it with the preset ci")
    options = dict.fromkeys(option for words in units.values() for option in definitions_and_folders(words))
    names = list(units)
    groups = [names[start : start + TOGETHER] for start in range(0, len(names), TOGETHER)]
    folder = build / "tidy"
    folder.mkdir(exist_ok=True)
    joined = [str(folder / f"{number}.cc") for number in range(len(groups))]
    for file, group in zip(joined, groups):
        pathlib.Path(file).write_text("".join(f'#include "{unit}"\n' for unit in group), encoding="utf-8")
    compiler = ["c++", "-std=c++20", *(word for option in options for word in option), "-c"]
    entries = [{"directory": str(folder), "file": file, "arguments": [*compiler, file]} for file in joined]
    (folder / "compile_commands.json").write_text(json.dumps(entries), encoding="utf-8")

    def check(file, group):
        result = clang_tidy(folder, [file])
        if result.returncode != 0:
            result = clang_tidy(build, group)
            print(result.stdout or result.stderr, end="", flush=True)
        return result.returncode == 0

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        sys.exit(0 if all(list(pool.map(check, joined, groups))) else 1)


if __name__ == "__main__":
    main()
