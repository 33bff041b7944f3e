"""A certificate for the servers of tests and benchmarks on this machine."""

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificate:
    """The files with a certificate, which clients trust, and its key."""

    path: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """What a server of Python needs."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path, self.key)
        return context


def local_certificate(folder: Path) -> Certificate:
    """Make a certificate for ``localhost`` and 127.0.0.1 in a folder."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a test")])
    here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost"), here]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    made = Certificate(folder / "certificate.pem", folder / "key.pem")
    pem = serialization.Encoding.PEM
    made.path.write_bytes(certificate.public_bytes(pem))
    plain = serialization.NoEncryption()
    made.key.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return made
