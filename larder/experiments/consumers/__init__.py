"""Consumers, each a module or a package that makes configs.

`registry` has the interface of consumers, and names all of them.
"""
