"""The command line: flags, exit statuses and the live display. Does not import Prefect."""
