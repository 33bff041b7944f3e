"""Engines copy objects from one store to another, and leave receipts of what they verified."""
