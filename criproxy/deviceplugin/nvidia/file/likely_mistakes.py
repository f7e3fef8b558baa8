"""Parts of NVIDIA's file that its plugin ignores silently, and that may be mistakes."""

from collections.abc import Iterator
from difflib import get_close_matches

from criproxy.deviceplugin.nvidia.go.yaml_like_go import second_document
from criproxy.deviceplugin.nvidia.mig import MIG_RESOURCES
from criproxy.deviceplugin.nvidia.options import PluginConfig, SharedResource

_GPU = "nvidia.com/gpu"
_CLOSE = 0.8
"""All resources have the same domain, so that most names are somewhat similar."""


def likely_mistakes(text: str, config: PluginConfig) -> Iterator[str]:
    """Yield sentences about *text* and the resulting *config*."""
    if line := second_document(text):
        yield f"line {line}: only the first YAML document of the file counts: what follows has no effect"
    if config.sharing.mps and config.sharing.time_slicing:
        yield "sharing.timeSlicing has no effect beside sharing.mps, which takes precedence"
    names = offered_names(config)
    for entry in without_cards(config):
        near = get_close_matches(entry.name, names, n=1, cutoff=_CLOSE)
        meant = f"; did you mean {near[0]}?" if near else ""
        yield f"sharing: no card is offered as {entry.name}, so this entry shares nothing{meant}"


def without_cards(config: PluginConfig) -> list[SharedResource]:
    """Return the sharing entries for resources that no card can have."""
    names = offered_names(config)
    mixed = config.flags.mig_strategy == "mixed"
    entries = config.sharing.shared.resources if config.sharing.shared else ()
    return [each for each in entries if each.name not in names and not (mixed and each.name.startswith(MIG_RESOURCES))]


def offered_names(config: PluginConfig) -> list[str]:
    """Return the resources that cards can have before sharing, without those of MIG profiles."""
    return list(dict.fromkeys((_GPU, *(each.name for each in (*config.gpu_resources, *config.mig_resources)))))
