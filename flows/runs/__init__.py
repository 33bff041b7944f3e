"""A flow run in this process: Prefect's settings, a server for it, its page and its end."""
