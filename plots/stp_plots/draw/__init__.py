"""A module per kind of plot; style and bars are common to them."""
