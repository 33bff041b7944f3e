"""What may stand in dataset files (`dataset`, `source`, `joins`) and cluster files (`cluster`).

Frozen pydantic models that refuse unknown keys, made of the strict types in `fields`.
"""

from larder.config.models.cluster import Cluster, Consumer, Copy, Mount, Nodes, Runner, Skyplane
from larder.config.models.dataset import (
    Cache,
    Dataset,
    Experiment,
    GlobSplits,
    Growth,
    HashSplits,
    Images,
    ImageTransform,
    Labels,
    Shards,
)
from larder.config.models.fields import Model
from larder.config.models.joins import Annotations, Missing, Samples
from larder.config.models.source import (
    Columns,
    Location,
    Report,
    Source,
)

__all__ = [
    "Annotations",
    "Cache",
    "Cluster",
    "Columns",
    "Consumer",
    "Copy",
    "Dataset",
    "Experiment",
    "GlobSplits",
    "Growth",
    "HashSplits",
    "ImageTransform",
    "Images",
    "Labels",
    "Location",
    "Missing",
    "Model",
    "Mount",
    "Nodes",
    "Report",
    "Runner",
    "Samples",
    "Shards",
    "Skyplane",
    "Source",
]
