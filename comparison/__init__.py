"""Comparing two measurements: differences, ratios, their intervals, and what differs in configuration. Pure."""
