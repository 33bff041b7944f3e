"""Consumers, each a module or a package that makes configs.

`consumer_interface` is the interface of consumers, and `registry` names all of them.
"""
