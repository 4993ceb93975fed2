"""Runs the tests of a file NAME_test.py beside this one: report, figures, judge, timelines, statistics, compare, compare_plots, overlapped or processes.

python3 plots/tests/run.py NAME [unittest arguments]
"""

import sys
import unittest
from pathlib import Path

if len(sys.argv) < 2:
    sys.exit(__doc__)
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
unittest.main(module=f"{sys.argv.pop(1)}_test")
