"""Where NVIDIA's feature discovery writes labels: to a file, to standard output, or to an object of the API.

criproxy always writes the file, whatever ``useNodeFeatureAPI`` says, since it has no credentials for the API.
"""

from dataclasses import dataclass

from criproxy.deviceplugin.nvidia.labels.labels import LabelError
from criproxy.deviceplugin.nvidia.options import Flags

_NODE_LABEL = "nfd.node.kubernetes.io/node-name"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOutput:
    """A feature file."""

    path: str
    removed_on_exit: bool
    """False if the program exits by itself, as the labels would disappear at once."""


@dataclass(frozen=True, slots=True)
class StandardOutput:
    """Standard output, in the format of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFeatureOutput:
    """An object of kind NodeFeature."""

    name: str
    namespace: str
    label: tuple[str, str]
    """Label by which the NFD master finds the node."""


Output = FileOutput | StandardOutput | NodeFeatureOutput


def output(flags: Flags, *, node_name: str = "", namespace: str = "default") -> Output:
    """Return where labels are written.

    Args:
        flags: The flags of feature discovery, whose default is the object.
        node_name: Name of the node in the API; empty if unknown.
        namespace: Namespace of the object.

    Raises:
        LabelError: The object's name or namespace is unknown; the text is NVIDIA's.
    """
    if flags.use_node_feature_api:
        return _object(node_name, namespace)
    return feature_file(flags)


def feature_file(flags: Flags) -> FileOutput | StandardOutput:
    """Return where labels are written if not to an object, as criproxy always does."""
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
