"""A cluster file (TOML) to a `Cluster`; what is wrong with it is reported with file and line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.base.errors import InvalidInput
from meshwright.base.locate import read
from meshwright.hardware.table import InvalidCluster, cluster_from_table

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.hardware.cluster import Cluster


def read_cluster(path: str | Path) -> Cluster:
    """The cluster in a file, in the form that hardware/table.py describes.

    Raises `InvalidInput` with a finding for everything that is wrong.
    """
    document = read(path)
    data = document.data
    nested = isinstance(data, dict) and isinstance(data.get("cluster"), dict)
    table = data["cluster"] if nested else data
    try:
        return cluster_from_table(table)
    except InvalidCluster as error:
        under = ("cluster",) if nested else ()
        raise InvalidInput(document.problem(p, under=under) for p in error.problems) from None
