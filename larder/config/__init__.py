"""Dataset and cluster files: their models, and the only loader of YAML and the environment."""
