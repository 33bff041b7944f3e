"""What all models of dataset and cluster files have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Base of all models: frozen and strict; undeclared keys are an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, strict=True, defer_build=True
    )
