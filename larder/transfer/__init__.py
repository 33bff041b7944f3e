"""Copies objects to the storage: inventory, differences, verified copies, costs."""
