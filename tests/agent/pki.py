"""Certificates for tests."""

import shutil
import subprocess
from pathlib import Path

import pytest


def make_pki(folder: Path) -> Path:
    """Make an authority, a server ``api.example`` and a client; ``locked.key`` is its key with a password."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl (Debian: apt-get install openssl)")

    def openssl(*arguments: str) -> None:
        subprocess.run(("openssl", *arguments), cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=authority", "-days", "2")
    (folder / "extensions").write_text("subjectAltName=DNS:api.example\n")
    for name in ("server", "client"):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ("-in", f"{name}.csr", "-out", f"{name}.crt", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial")
        openssl("x509", "-req", *signed, "-days", "2", "-extfile", "extensions")
    openssl("ec", "-in", "client.key", "-out", "locked.key", "-aes256", "-passout", "pass:secret")
    return folder
