"""Copies between clouds with Skyplane, which is not maintained and therefore never trusted.

``choice`` says when; ``adapter`` runs Skyplane's own environment as a subprocess, under a time
limit, and ends its machines on every way out; ``runner`` is the program in that environment. What
has arrived is then compared with its source, and the rest copied (`larder.copy.proof`).
"""
