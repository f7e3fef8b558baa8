"""Paths of mounts in containers, of which there are many ways to write the same one."""

from posixpath import normpath


def clean_path(path: str) -> str:
    """*path* as the runtime takes it: absolute, and without ``.``, ``..`` and repeated slashes.

    `normpath` alone keeps two slashes at the beginning, and a path without one is below the container's root, too.
    """
    return normpath("/" + path.lstrip("/"))
