"""Copying objects to the storage: inventory, plan, copies, receipts."""
