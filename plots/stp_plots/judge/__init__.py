"""Ours against published figures, null models, claims; results against each other."""
