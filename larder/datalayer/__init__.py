"""The data layer: the elements that a function returns, cached once under an id and a version.

Start with `decorators`.
"""
