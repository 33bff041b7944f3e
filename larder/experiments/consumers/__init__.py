"""Consumers, each a module or a package that makes configs.

`base` has the interface of consumers, and `registry` names all of them.
"""
