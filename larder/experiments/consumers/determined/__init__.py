"""Determined: experiment configs, and differences between its releases."""
