"""Identity, publishing and opening of versions."""
