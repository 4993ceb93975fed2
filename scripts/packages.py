"""Importing this makes sure of stp_plots and of the packages that it needs."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "plots"))
from stp_plots import packages  # noqa: E402, F401
