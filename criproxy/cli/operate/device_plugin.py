"""``criproxy device-plugin``: offers the node's cards to the kubelet."""

import os
from collections.abc import Callable
from typing import Any

import click

from criproxy.cli.client import DEFAULT_CONTROL_SOCKET
from criproxy.cli.options import PathOption, config_option, host_root_option, http_option, log_options, program_log
from criproxy.deviceplugin.nvidia.settings import CDI_FEATURES, KUBELET_SOCKET, SETTINGS

_METAVARS = {"text": "TEXT", "bool": "[true|false]", "texts": "LIST", "integers": "LIST", "duration": "DURATION"}
_ALONE = {
    KUBELET_SOCKET: "The kubelet's registration socket; the plugin creates its sockets in the same directory. "
    "Overrides {}, as in NVIDIA's plugin.",
    CDI_FEATURES: "Accepted without effect, as is {}, because no CDI specification is written.",
}
"""The flags that NVIDIA's file does not contain."""


def _nvidia_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of NVIDIA's device plugin."""
    for setting in reversed(SETTINGS):
        if setting.flags:
            names = [f"--{name}" for name in setting.flags]
            more: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if setting.kind == "bool" else {}
            text = _ALONE.get(setting.key, f"Overrides {{}} and {setting.key}, as in NVIDIA's plugin.")
            option = click.option(
                *names,
                multiple=setting.kind in ("texts", "integers"),
                metavar=_METAVARS[setting.kind],
                help=text.format(setting.variables[0]),
                **more,
            )
            command = option(command)
    return command


def nvidia_flags(options: dict[str, Any]) -> dict[str, str]:
    """Remove NVIDIA's flags from *options*, and return them without their dashes, by their first names."""
    found = {}
    for name in (setting.flags[0] for setting in SETTINGS if setting.flags):
        value = options.pop(name.replace("-", "_"), None)
        if value not in (None, ()):
            found[name] = ",".join(value) if isinstance(value, tuple) else value
    return found


@click.command("device-plugin", short_help="Offer GPUs and other devices to the kubelet.")
@config_option
@click.option(
    "--nvidia-config",
    "--config-file",
    "nvidia_config",
    metavar="FILE|DIR",
    help="NVIDIA's configuration file (version: v1), or a directory of such files.  "
    "[default: the variable CONFIG_FILE, else devices.plugin.nvidiaConfig of the policy file]",
)
@click.option("--name", metavar="NAME", help="Use the file with this name from the directory of NVIDIA's files.")
@click.option(
    "--hostname", metavar="NAME", help="Use the files for the host with this name.  [default: this host's name]"
)
@click.option(
    "--group",
    metavar="LABEL",
    help="Use the files for this group of nodes.  [default: the content of /etc/criproxy/group]",
)
@click.option(
    "--named-config",
    type=PathOption(folder=False),
    metavar="FILE",
    help="Where the daemon puts the configuration that a node label has chosen in the cluster; if the file exists, it "
    "counts in place of NVIDIA's file.  [default: /var/lib/criproxy/device-configuration.json]",
)
@click.option(
    "--kubelet-dir",
    type=PathOption(folder=True),
    metavar="DIR",
    help="The kubelet's directory, with device-plugins, plugins_registry and pod-resources.  "
    "[default: /var/lib/kubelet]",
)
@click.option(
    "--register",
    type=click.Choice(["kubelet", "plugins-registry"]),
    help="How to register with the kubelet: call its socket, or put a socket into its directory plugins_registry.  "
    "[default: devices.plugin.register of the policy file, else kubelet]",
)
@host_root_option(
    "Directory that contains the host's /sys, /proc and /dev, the kubelet's files, and the files that the policy "
    "file names. Programs that the policy file names run in the file system of this process."
)
@http_option
@click.option(
    "--control-socket",
    default=DEFAULT_CONTROL_SOCKET,
    show_default=True,
    metavar="PATH",
    help="Control socket of the daemon, for reports about cards. The daemon need not be running.",
)
@log_options
@_nvidia_flags
def command(log_level: str, log_format: str, **options: Any) -> None:  # noqa: ANN401 - click has checked them
    """Offer the cards of this node to the kubelet, whole or shared, and monitor their health.

    Without a policy file, the command offers NVIDIA GPUs, just as NVIDIA's own device plugin does. Options take
    precedence over the environment variables of NVIDIA's plugin, and these over its file.

    SIGHUP makes the program reread its files. SIGTERM and SIGINT stop it.
    """
    with program_log(log_format, log_level) as writer:
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # its other messages are about calls, which our log has
        from criproxy.deviceplugin.configuration.configuration import Options
        from criproxy.deviceplugin.serve import run

        flags = nvidia_flags(options)
        given = {name: value for name, value in options.items() if value is not None}
        run(Options(nvidia_flags=flags, **given), writer)
