"""How the runtime takes NRI plugins: where, what its configuration says about it, and what of that has to change."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import pairwise
from typing import Any

from criproxy.install import paths
from criproxy.install.host import CommandFailed, Host
from criproxy.install.kubelet import Kubelet, NodeKind
from criproxy.install.texts import NRI_PLUGIN, CannotEdit, flag, nri_wanted, request_timeout, toml, with_nri

_CONTAINERD, _CRIO = "containerd.service", "crio.service"
_CRIO_TIMEOUT = "nri_plugin_request_timeout"


@dataclass(frozen=True, slots=True)
class Change:
    """What the runtime needs so that it takes plugins: another text of a file, and a restart."""

    path: str
    text: str
    unit: str


@dataclass(frozen=True)
class NriOfRuntime:
    """NRI of the runtime with the socket *runtime*, which the node's *kubelet* calls; each file is read once."""

    kubelet: Kubelet
    runtime: str

    @property
    def host(self) -> Host:
        """The node."""
        return self.kubelet.host

    @property
    def is_crio(self) -> bool:
        """Whether it is CRI-O."""
        return self.runtime.endswith(paths.CRIO)

    @property
    def socket(self) -> str:
        """Where it takes plugins, as far as its configuration can be read."""
        name = "nri_listen" if self.is_crio else "socket_path"
        with suppress(CannotEdit):
            return paths.socket_of(str(self.table.get(name) or paths.NRI))
        return paths.NRI

    @property
    def unit(self) -> str:
        """The unit of systemd in which it runs."""
        return self.kubelet.unit if self.kubelet.is_embedded else _CRIO if self.is_crio else _CONTAINERD

    @cached_property
    def change(self) -> Change | None:
        """What switches NRI on, and gives plugins time to answer; None if that is so.

        Raises:
            CannotEdit: this has to be done by hand.
        """
        if self.kubelet.is_embedded:
            if not self.host.is_socket(self.socket):
                raise CannotEdit(
                    f"{self.socket} does not exist, and {self.kubelet.kind} writes containerd's configuration: "
                    "switch NRI on in its template, config.toml.tmpl or config-v3.toml.tmpl, and restart it"
                )
            return None
        return self._of_crio() if self.is_crio else self._of_containerd()

    def _of_crio(self) -> Change | None:
        """CRI-O reads our file in the order of all their names; a key counts as the last file has it."""
        earlier, later = dict[str, Any](), dict[str, tuple[str, Any]]()
        for path, data in self.files.items():
            if path <= paths.CRIO_NRI:
                earlier |= self._of(data)
            else:
                later |= {key: (path, value) for key, value in self._of(data).items()}
        timeout = request_timeout(earlier.get(_CRIO_TIMEOUT))
        for key, (path, value) in later.items():
            wanted = {"enable_nri": True, _CRIO_TIMEOUT: request_timeout(value)}.get(key, value)
            if value != wanted:
                said = f"{key} = {json.dumps(value)}, and is read after {paths.CRIO_NRI}"
                raise CannotEdit(f"{path} has {said}: write {json.dumps(wanted)} there")
        text = paths.CRIO_NRI_TEXT.format(json.dumps(timeout))
        return None if self.host.read(paths.CRIO_NRI) == text else Change(paths.CRIO_NRI, text, _CRIO)

    def _of_containerd(self) -> Change | None:
        with suppress(CommandFailed):  # its program is elsewhere
            if re.search(r" v?1\.[0-6]\.", self.host.run(["containerd", "--version"])[1]):
                raise CannotEdit("this containerd takes no NRI plugins: containerd 1.7 and newer do")
        before = self.host.read(self.path)
        try:
            text = with_nri(before or "")
        except CannotEdit as error:
            raise CannotEdit(f"{self.path}: {error}: see docs/nri.md") from error
        self._check_no_file_closes_it()
        imported = [(path, self._of(data)) for path, data in self.files.items() if path != self.path]
        for path, missing in [(path, nri_wanted(table)) for path, table in imported if table]:
            # Depending on its version, containerd reads this table instead of the one in the main file, or over it.
            if missing:
                keys = ", ".join(f"{key} = {json.dumps(value)}" for key, value in missing.items())
                table = f'[plugins."{NRI_PLUGIN}"]'
                raise CannotEdit(f"{path}, which {self.path} imports, has {table} without {keys}: write that there")
        is_on = any(table for _, table in imported)
        return None if is_on or text == before else Change(self.path, text, _CONTAINERD)

    def _check_no_file_closes_it(self) -> None:
        for path, data in self.files.items():
            if NRI_PLUGIN in data.get("disabled_plugins", ()):
                raise CannotEdit(f'{path}: disabled_plugins has "{NRI_PLUGIN}": remove it there')
            if self._of(data).get("disable_connections"):
                raise CannotEdit(f"{path}: with disable_connections, containerd takes only plugins that it starts")

    @cached_property
    def path(self) -> str:
        """The main configuration file of containerd, as its unit names it."""
        if self.kubelet.is_embedded:
            return f"/var/lib/rancher/{self.kubelet.kind}/agent{paths.CONTAINERD_CONFIG}"
        words = Kubelet(self.host, NodeKind.PLAIN, _CONTAINERD).words  # units are read in the same way
        short = next((after for word, after in pairwise(words) if word == "-c"), None)
        return flag(words, "config") or short or paths.CONTAINERD_CONFIG

    @property
    def table(self) -> dict[str, Any]:
        """The settings of NRI, from all files.

        Raises:
            CannotEdit: a file is not valid TOML.
        """
        return {key: value for data in self.files.values() for key, value in self._of(data).items()}

    @cached_property
    def files(self) -> dict[str, dict[str, Any]]:
        """The contents of the configuration files, in the order in which the runtime reads them.

        Raises:
            CannotEdit: a file is not valid TOML.
        """
        found, due = dict[str, dict[str, Any]](), [self.path]
        if self.is_crio:
            due = ["/etc/crio/crio.conf", *self.host.entries(paths.CRIO_NRI.rpartition("/")[0])]
        while due:
            path = due.pop(0)
            if path in found or (text := self.host.read(path)) is None:
                continue
            try:
                found[path] = toml(text)
            except CannotEdit as error:
                raise CannotEdit(f"{path}: {error}") from error
            due += [] if self.is_crio else self._imported(path, found[path])
        return found

    def _imported(self, path: str, data: Mapping[str, Any]) -> Iterator[str]:
        """Yield the paths of the files that a file of containerd imports."""
        for pattern in map(str, data.get("imports", ())):
            whole = pattern if pattern.startswith("/") else f"{path.rpartition('/')[0]}/{pattern}"
            folder, _, name = whole.rpartition("/")
            yield from (each for each in self.host.entries(folder) if fnmatchcase(each.rpartition("/")[2], name))

    def _of(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of NRI in one file."""
        above, name = ("crio", "nri") if self.is_crio else ("plugins", NRI_PLUGIN)
        table = data.get(above, {}).get(name, {})
        return table if isinstance(table, dict) else {}
