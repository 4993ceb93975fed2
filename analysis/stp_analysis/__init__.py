"""Shared by the programs of analysis/."""
