"""Copying objects to the local side: inventory, plan, copies, receipts."""
