"""What may stand in dataset files (`dataset`, `joins`) and cluster files (`cluster`), and in both
and the commands that copy (`locations`, `copying`).

Frozen pydantic models that refuse unknown keys, made of the strict types in `field_types`.
"""
