"""AlterUserScramCredentials: set or delete SCRAM credentials (KIP-554)."""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

ALTER_USER_SCRAM_CREDENTIALS = Api(51, "AlterUserScramCredentials", 0, 0, 0)


class ScramCredentialDeletion(Struct):
    name: str = field("string")
    # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.
    mechanism: int = field("int8")


class ScramCredentialUpsertion(Struct):
    name: str = field("string")
    mechanism: int = field("int8")
    iterations: int = field("int32")
    salt: bytes = field("bytes")
    salted_password: bytes = field("bytes")


class AlterUserScramCredentialsRequestData(Message, versions=(0, 0)):
    deletions: list[ScramCredentialDeletion] = field("[]struct", of=ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = field("[]struct", of=ScramCredentialUpsertion)


class ScramAlterationResult(Struct):
    user: str = field("string")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)


class AlterUserScramCredentialsResponseData(Message, versions=(0, 0)):
    throttle_time_ms: int = field("int32")
    results: list[ScramAlterationResult] = field("[]struct", of=ScramAlterationResult)
