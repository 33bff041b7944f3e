"""What may stand in dataset files (`dataset`, `locations`, `joins`) and cluster files (`cluster`).

Frozen pydantic models that refuse unknown keys, made of the strict types in `field_types`.
"""

from larder.config.models.cluster import (
    Cluster,
    Consumer,
    CopyConfig,
    Downloads,
    Limits,
    Mount,
    Nodes,
    RunnerConfig,
    Skyplane,
)
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
from larder.config.models.field_types import Model
from larder.config.models.joins import Annotations, Missing, Samples
from larder.config.models.locations import (
    Location,
    Report,
    Source,
)

__all__ = [
    "Annotations",
    "Cache",
    "Cluster",
    "Consumer",
    "CopyConfig",
    "Dataset",
    "Downloads",
    "Experiment",
    "GlobSplits",
    "Growth",
    "HashSplits",
    "ImageTransform",
    "Images",
    "Labels",
    "Limits",
    "Location",
    "Missing",
    "Model",
    "Mount",
    "Nodes",
    "Report",
    "RunnerConfig",
    "Samples",
    "Shards",
    "Skyplane",
    "Source",
]
