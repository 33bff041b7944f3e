"""A file as text: YAML with the line of each value (`yaml`), what replaces values (`replacements`),
and messages that say where a mistake is (`messages`).
"""
