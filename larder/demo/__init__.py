"""Real data to try Larder with."""
