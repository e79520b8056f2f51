"""A certificate authority for tests, made with the program `openssl`."""

import subprocess
from pathlib import Path
from typing import NamedTuple

__all__ = ("Authority", "Certificate")


class Certificate(NamedTuple):
    """A certificate and its key, as files."""

    file: Path
    key: Path


class Authority:
    """Issues certificates. All files are below one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self.file = folder / "ca.pem"
        """the authority's own certificate"""
        self._run("req", "-x509", *_NEW_KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca", "-days", "2")

    def issue(self, name: str, hosts: str, *, days: int = 2) -> Certificate:
        """Issue a certificate.

        Args:
            name: name of the files.
            hosts: the hosts in the certificate, such as "DNS:localhost,IP:127.0.0.1".
            days: days until it expires; negative for one that has expired.
        """
        subject = ("-subj", f"/CN={name}", "-addext", f"subjectAltName={hosts}")
        self._run("req", *_NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", *subject)
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", str(days))
        self._run(
            *("x509", "-req", "-in", f"{name}.csr", *signed, "-copy_extensions", "copy", "-out", f"{name}.pem"),
        )
        return Certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")

    def options(self, certificate: Certificate, *, asks_clients: bool = False) -> tuple[str, ...]:
        """Return the command-line options of a server with this certificate.

        Args:
            certificate: the server's certificate.
            asks_clients: refuse clients without a certificate of this authority.
        """
        files = ("--tls-cert-file", str(certificate.file), "--tls-key-file", str(certificate.key))
        return (*files, "--tls-ca-cert-file", str(self.file), "--tls-auth-clients", "yes" if asks_clients else "no")

    def _run(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self._folder, check=True, capture_output=True)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
