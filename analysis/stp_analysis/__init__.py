"""What the programs of analysis/ share."""
