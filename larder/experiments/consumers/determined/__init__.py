"""Determined: experiment configs, and what its releases make of them."""
