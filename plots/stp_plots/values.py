"""Values of a record: what they are, and how a reader writes them."""

import json
import math


def number(value):
    """`value` if it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value


def dictionary(value):
    return value if isinstance(value, dict) else {}


def items(value):
    return value if isinstance(value, list) else []


def plain(value):
    """`value` as something that can be compared and hashed."""
    return value if isinstance(value, (str, int, float, bool, type(None))) else json.dumps(value, sort_keys=True)


def text(value):
    """`value` as a reader writes it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if number(value) is not None:
        return f"{value:g}" if isinstance(value, float) else str(value)
    return json.dumps(value)


def unit_costs(data):
    """The unit costs of a row in words, as totals of a chunk if all chunks are alike; empty if it has none."""
    costs = {key: number(value) or 0 for key, value in dictionary(data.get("unit_costs")).items()}
    if not costs:
        return ""
    layers = {number(count) for count in items(data.get("layers_per_chunk"))}
    alike = len(layers) == 1 and None not in layers
    scale = layers.pop() if alike else 1
    # Attention and MLP each; either ends in an all-reduce, in either direction.
    passes = {"F": ["F"], "I": ["I"], "W": ["W", "W_early"]}
    totals = {
        name: [f"{unit}.{part}" for unit in ("attn", "mlp") for part in parts] for name, parts in passes.items()
    } | {"all-reduce": ["all_reduce"] * 2}
    told = [f"{name} {scale * sum(costs.get(key, 0) for key in keys):g}" for name, keys in totals.items()]
    known = {key for keys in totals.values() for key in keys}
    told += [f"{key} {value:g}" for key, value in costs.items() if key not in known and value]
    return ", ".join(told) + ("" if alike else " per layer")
