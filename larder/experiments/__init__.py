"""From a published version to the config of the experiment that trains on it."""
