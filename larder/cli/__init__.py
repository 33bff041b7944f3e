"""The command line: flags, exit statuses, and the live display. Nothing of it imports Prefect."""
