"""Plots and the report page of a result folder. Reads results only; predicts nothing."""
