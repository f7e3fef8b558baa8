"""Normalizes the paths of mounts in containers, which can be written in many ways."""

from posixpath import normpath


def clean_path(path: str) -> str:
    """Return *path* as the runtime interprets it: absolute, without ``.``, ``..`` and repeated slashes.

    `normpath` alone keeps two slashes at the beginning, and a relative path is below the container's root, too.
    """
    return normpath("/" + path.lstrip("/"))
