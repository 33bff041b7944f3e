"""Models of dataset files (`dataset`, `joins`) and cluster files (`cluster`).

Both files and the commands that copy share `locations` and `copy_config`.

Frozen pydantic models that refuse unknown keys, made of the strict types in `field_types`.
"""
