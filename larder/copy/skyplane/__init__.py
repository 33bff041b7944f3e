"""Copies between clouds with Skyplane, which is not maintained and therefore never trusted.

``engine_choice`` says when Skyplane copies. ``adapter`` runs its environment as a subprocess,
under a time limit, and ends its machines on every way out. ``runner`` is the program in that
environment. Arrived objects are then compared with their source, and the rest copied
(`larder.copy.proof`).
"""
