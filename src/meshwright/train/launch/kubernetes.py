"""An Indexed Job and its headless Service for Kubernetes: `kubectl apply -f FILE`.

One pod a node; the Service gives each a name that the others find. This is the API of every cluster
since 1.31 (batch/v1 with pod failure policies) and needs no operator. A pod that was evicted, or
that saved because it was asked to stop, is replaced without being counted; one whose input is wrong
ends the job.

Source: Kubernetes 1.34, API reference of batch/v1 Job and v1 Service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.base.errors import MeshwrightError
from meshwright.base.pattern import pattern
from meshwright.base.words import shown
from meshwright.train.launch.codes import PREEMPTED, REFUSED
from meshwright.train.launch.documents import to_yaml
from meshwright.train.launch.target import PORT, checked, command, named, summary

if TYPE_CHECKING:
    from meshwright.train.launch.target import Target

_LABEL = pattern(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z")
_REFERENCE = pattern(r"\$(?=[$(])")
_LONGEST = 52  # a pod's host name adds its index, and must fit into 63
_LATE_S = 30  # beyond the grace, for the supervisor to end
_RESOURCES = (("MI", "amd.com/gpu"), ("TPU", "google.com/tpu"), ("Ascend", "huawei.com/Ascend910"))
_MOUNT = "/data"


def job_file(target: Target) -> str:
    """The two documents; MeshwrightError without an image, or for a name that no pod can have."""
    name = _label("name", target.name)
    if not target.image:
        raise MeshwrightError(
            "a pod needs a container image that has meshwright[train]", hint="add --image IMAGE"
        )
    documents = [_job(target, name)]
    if target.nodes > 1:
        documents.insert(0, _service(target, name))
    return to_yaml(*documents, comment=f"{summary(target)}; kubectl apply -f FILE")


def _label(what: str, value: str) -> str:
    """A name for DNS."""
    if _LABEL.match(value) and len(value) <= _LONGEST:
        return value
    raise MeshwrightError(
        f"{what} {shown(value)} is none that Kubernetes takes",
        hint=f"use at most {_LONGEST} lower-case letters, digits and -, as --{what} my-run",
    )


def _metadata(target: Target, name: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "meshwright", "app.kubernetes.io/instance": name}
    place = {"namespace": _label("namespace", target.namespace)} if target.namespace else {}
    return {"name": name, **place, "labels": labels}


def _service(target: Target, name: str) -> dict[str, Any]:
    """Names for pods, also before they are ready, as they meet while they start."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(target, name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"batch.kubernetes.io/job-name": name},
            "ports": [{"name": "rendezvous", "port": PORT}],
        },
    }


def _job(target: Target, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(target, name),
        "spec": {
            "completionMode": "Indexed",
            "completions": target.nodes,
            "parallelism": target.nodes,
            "backoffLimit": max(target.max_restarts, target.nodes),
            "podFailurePolicy": {"rules": _failures()},
            "template": {"spec": _pod(target, name)},
        },
    }


def _failures() -> list[dict[str, Any]]:
    """What the ways to end mean, the first that fits."""
    return [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [PREEMPTED]}},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [REFUSED]}},
    ]


def _pod(target: Target, name: str) -> dict[str, Any]:
    volumes: list[dict[str, Any]] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]
    if target.volume:
        claim = {"claimName": named("volume", target.volume)}
        volumes.append({"name": "data", "persistentVolumeClaim": claim})
        mounts.append({"name": "data", "mountPath": _MOUNT})
    rendezvous = f'"{name}-0.{name}:{PORT}"'
    line = command(target, node_rank='"$JOB_COMPLETION_INDEX"', rendezvous=rendezvous)
    container = {
        "name": "train",
        "image": target.image,
        "command": ["bash", "-c", _literal(f"exec {line}")],
        "env": [
            {"name": name, "value": _literal(value)}
            for name, value in checked(target.environment).items()
        ],
        "resources": _resources(target),
        "volumeMounts": mounts,
        **({"workingDir": _MOUNT} if target.volume else {}),
    }
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": target.grace_s + _LATE_S,
        "containers": [container],
        "volumes": volumes,
    }
    if target.nodes > 1:
        spec |= {"subdomain": name, "affinity": _apart(name)}
    return spec


def _literal(text: str) -> str:
    """Text that Kubernetes leaves as it is: $(NAME) would be filled in, and $$ halved."""
    return _REFERENCE.sub("$$", text)


def _resources(target: Target) -> dict[str, Any]:
    """GPUs by the name of their device plugin, and on CPUs a core for each rank."""
    if not target.on_gpus:
        cores = max(target.cores_per_rank, 1) * target.ranks_per_node
        return {"requests": {"cpu": str(cores)}}
    kinds = (kind for prefix, kind in _RESOURCES if target.gpu.startswith(prefix))
    return {"limits": {next(kinds, "nvidia.com/gpu"): str(target.ranks_per_node)}}


def _apart(name: str) -> dict[str, Any]:
    """One pod a node."""
    term = {
        "labelSelector": {"matchLabels": {"batch.kubernetes.io/job-name": name}},
        "topologyKey": "kubernetes.io/hostname",
    }
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
