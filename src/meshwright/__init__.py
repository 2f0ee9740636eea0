"""Plans, checks, runs and diagnoses parallel training of large language models.

    import meshwright as mw

    result = mw.plan("llama-3.1-70b", "H100:8", nodes=8, seq_len=8192, global_batch="4Mtok")
    print(result.best)

Public names are imported when first used, so that `import meshwright` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Cluster": "meshwright.hardware.cluster",
    "Finding": "meshwright.base.finding",
    "Job": "meshwright.plan.job",
    "MeshwrightError": "meshwright.base.errors",
    "Model": "meshwright.model.architecture",
    "Plan": "meshwright.plan.plan",
    "Workload": "meshwright.plan.job",
    "check": "meshwright.api",
    "check_files": "meshwright.api",
    "convert_files": "meshwright.api",
    "cluster": "meshwright.api",
    "load_model": "meshwright.api",
    "predict": "meshwright.api",
    "read_job": "meshwright.api",
    "write_job": "meshwright.plan.file",
}
__all__ = [
    "Cluster",
    "Finding",
    "Job",
    "MeshwrightError",
    "Model",
    "Plan",
    "Workload",
    "__version__",
    "check",
    "check_files",
    "cluster",
    "convert_files",
    "diagnose",
    "load_model",
    "plan",
    "predict",
    "read_job",
    "train",
    "write_job",
]

if TYPE_CHECKING:
    from meshwright.api import (
        check,
        check_files,
        cluster,
        convert_files,
        load_model,
        plan,
        predict,
        read_job,
    )
    from meshwright.api.diagnosing import diagnose
    from meshwright.api.training import train
    from meshwright.base.errors import MeshwrightError
    from meshwright.base.finding import Finding
    from meshwright.hardware.cluster import Cluster
    from meshwright.model.architecture import Model
    from meshwright.plan.file import write_job
    from meshwright.plan.job import Job, Workload
    from meshwright.plan.plan import Plan


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first asked for (PEP 562)."""
    if name in ("diagnose", "plan", "train"):  # packages that can be called
        return import_module(f"meshwright.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
