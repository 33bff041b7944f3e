"""Tools for tests of Larder, and of programs that use it."""
