"""Samples: grouping, splits, labels, and the order in which they are written."""
