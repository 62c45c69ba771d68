"""The data room: sources with checksums, data sets as tensors, partitions over clients."""

from sdfeel.data.adapters import (
    Columns,
    from_arrays,
    from_flower,
    from_huggingface,
    from_pandas,
    from_tokens,
)
from sdfeel.data.catalogue import DATASETS
from sdfeel.data.client_source import ClientSource
from sdfeel.data.clients import ClientData
from sdfeel.data.datasets import Dataset, load, train_labels
from sdfeel.data.download import Fetched, fetch
from sdfeel.data.fresh import Fresh, RandomTransformWarning
from sdfeel.data.leaf import from_leaf, leaf_clusters
from sdfeel.data.partitions import PARTITIONS, partition
from sdfeel.trees import Pixels

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "ClientData",
    "ClientSource",
    "Columns",
    "Dataset",
    "Fetched",
    "Fresh",
    "Pixels",
    "RandomTransformWarning",
    "fetch",
    "from_arrays",
    "from_flower",
    "from_huggingface",
    "from_leaf",
    "from_pandas",
    "from_tokens",
    "leaf_clusters",
    "load",
    "partition",
    "train_labels",
]
