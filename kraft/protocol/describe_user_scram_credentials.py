"""DescribeUserScramCredentials: mechanisms and iterations of users (KIP-554).

Kafka's controllers list it in ApiVersions but have no handler for it; brokers serve it.
"""

from __future__ import annotations

from kraft._core.codec.message_schema import field
from kraft._core.codec.metadata_codec import Message, Struct
from kraft.protocol.headers import Api

DESCRIBE_USER_SCRAM_CREDENTIALS = Api(50, "DescribeUserScramCredentials", 0, 0, 0)


class ScramUser(Struct):
    name: str = field("string")


class DescribeUserScramCredentialsRequestData(Message, versions=(0, 0)):
    # Null asks for all users.
    users: list[ScramUser] | None = field("[]struct", None, nullable=True, of=ScramUser)


class ScramCredentialInfo(Struct):
    # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512.
    mechanism: int = field("int8")
    iterations: int = field("int32")


class ScramUserResult(Struct):
    user: str = field("string")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)
    credential_infos: list[ScramCredentialInfo] = field("[]struct", of=ScramCredentialInfo)


class DescribeUserScramCredentialsResponseData(Message, versions=(0, 0)):
    throttle_time_ms: int = field("int32")
    error_code: int = field("int16")
    error_message: str | None = field("string", None, nullable=True)
    results: list[ScramUserResult] = field("[]struct", of=ScramUserResult)
