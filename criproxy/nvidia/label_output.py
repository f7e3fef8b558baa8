"""Where NVIDIA's feature discovery puts labels: into a file, onto its standard output, or into an object of the API.

criproxy writes the file whatever ``useNodeFeatureAPI`` says, since it has no credentials for the API.
"""

from dataclasses import dataclass

from criproxy.nvidia.labels import LabelError
from criproxy.nvidia.options import Flags

_NODE_LABEL = "nfd.node.kubernetes.io/node-name"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOutput:
    """A feature file."""

    path: str
    removed_on_exit: bool
    """Not where the program ends of itself, so that the labels would end with it."""


@dataclass(frozen=True, slots=True)
class StandardOutput:
    """The program's own output, in the form of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFeatureOutput:
    """An object of the kind NodeFeature."""

    name: str
    namespace: str
    label: tuple[str, str]
    """By which the master finds the node."""


Output = FileOutput | StandardOutput | NodeFeatureOutput


def output(flags: Flags, *, node_name: str = "", namespace: str = "default") -> Output:
    """Where labels go.

    Args:
        flags: those of feature discovery, whose default is the object.
        node_name: of the node in the API; empty where that is not known.
        namespace: of the object.

    Raises:
        LabelError: the object's name or namespace is not known; the text is NVIDIA's.
    """
    if flags.use_node_feature_api:
        return _object(node_name, namespace)
    return feature_file(flags)


def feature_file(flags: Flags) -> FileOutput | StandardOutput:
    """Where labels go if not into an object: what criproxy does in any case."""
    gfd = flags.gfd
    if not gfd.output_file:
        return StandardOutput()
    return FileOutput(path=gfd.output_file, removed_on_exit=not gfd.oneshot and gfd.sleep_interval_ns is not None)


def _object(node_name: str, namespace: str) -> NodeFeatureOutput:
    for name, value in (("node-name", node_name), ("namespace", namespace)):
        if not value:
            raise LabelError(f"required flag {name} not set")
    return NodeFeatureOutput(
        name=f"nvidia-features-for-{node_name}", namespace=namespace, label=(_NODE_LABEL, node_name)
    )
