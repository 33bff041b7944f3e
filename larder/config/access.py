"""How a store is reached: server, account, and who pays. Never contains a secret."""

from __future__ import annotations

from dataclasses import dataclass

GIVE_UP_SECONDS = 120.0
_SILENT_SHARE = 0.45


@dataclass(frozen=True, slots=True)
class Access:
    """How a store is reached. Credentials are named, never included.

    Attributes:
        endpoint: URL of an S3-compatible server other than AWS, or of a server that imitates GCS.
        role: ARN of the IAM role to assume.
        block: ``KIND/NAME`` of the Prefect block with the credentials.
        anonymous: Whether requests are not signed, for a public bucket.
        kms_key: The key that encrypts what is written; None leaves that to the bucket.
        project: The GCS project that is billed.
        give_up_seconds: A call fails after this long without an answer, including its repetitions.
    """

    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    role: str | None = None
    block: str | None = None
    anonymous: bool = False
    requester_pays: bool = False
    kms_key: str | None = None
    project: str | None = None
    give_up_seconds: float = GIVE_UP_SECONDS

    @property
    def silence_seconds(self) -> float:
        """How long to wait for a byte of an answer: a call that hangs is repeated once."""
        return _SILENT_SHARE * self.give_up_seconds


DEFAULT_ACCESS = Access()
