"""What the programs of plots/ share: `read` records, `judge` them, `draw` them, show them on a `page`; each uses only those before it."""
