"""Importing this, before what needs them, makes sure of the packages: a program whose interpreter lacks one starts again with another that may have
them ($STP_PYTHON, then /usr/bin/python3), or ends with 2 and says what to install. From then on SIGINT ends the program without a traceback."""

import importlib.util
import os
import signal
import sys

NEEDED = ("numpy", "scipy", "pandas", "matplotlib", "jinja2")
TRIED = "STP_PYTHON_TRIED"  # interpreters that lacked some

# The program that started this one says that it was interrupted.
signal.signal(signal.SIGINT, signal.SIG_DFL)
missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
tried = [path for path in os.environ.pop(TRIED, "").split(os.pathsep) if path]
if missing:
    for python in (os.environ.get("STP_PYTHON"), "/usr/bin/python3"):
        if python and python not in tried and os.access(python, os.X_OK):
            os.environ[TRIED] = os.pathsep.join([*tried, python])
            os.execv(python, [python, *sys.argv])
    print(f"{os.path.basename(sys.argv[0])}: Python lacks {', '.join(missing)}; install "
          f"{' '.join('python3-' + name for name in missing)}, or name a Python that has them in STP_PYTHON", file=sys.stderr)  # fmt: skip
    sys.exit(2)
