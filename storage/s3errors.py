"""What an S3 answer means: every failure of a request, reduced to what its caller can do about it.

A refused condition and a missing key are answers. `NOT_DONE` and `UNKNOWN` are worth another try; after `UNKNOWN` a
write may be there. `CONFIGURATION` stays wrong until a person changes something, and says what in one line.
Source: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
"""

from __future__ import annotations

from enum import Enum

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError


class Meaning(Enum):
    MISSING = "missing"  #: no such key
    REFUSED = "refused"  #: the condition did not hold
    NOT_DONE = "not-done"  #: never reached the server, or turned away before any work
    UNKNOWN = "unknown"  #: done or not, nobody said
    CONFIGURATION = "configuration"  #: will not work as it is set up


class Failure(Exception):
    """A request that did not succeed. `problem` is one line for a person, without secrets."""

    def __init__(self, meaning: Meaning, problem: str) -> None:
        super().__init__(meaning, problem)
        self.meaning, self.problem = meaning, problem


#: Everything a boto3 call, or reading its body, raises for reasons outside this program.
REQUEST_ERRORS: tuple[type[Exception], ...] = (
    boto.ClientError,
    boto.BotoCoreError,
    ResponseParserError,
    OSError,
)

_PERMISSIONS = "s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket are needed"

_CONFIGURATION = {
    "NoSuchBucket": "the bucket does not exist",
    "InvalidBucketName": "the bucket's name is not valid",
    "InvalidAccessKeyId": "bad credentials: the access key id is unknown",
    "SignatureDoesNotMatch": "bad credentials: the secret access key does not fit the access key id",
    "InvalidToken": "bad credentials: the session token is not valid",
    "ExpiredToken": "bad credentials: the session token has expired",
    "TokenRefreshRequired": "bad credentials: the session token has expired",
    "AccessDenied": f"access denied: {_PERMISSIONS}, and kms permissions with a KMS key",
    "AllAccessDisabled": f"access denied: {_PERMISSIONS}",
    "RequestTimeTooSkewed": "this machine's clock is too far from the server's: set it",
    "RequestExpired": "this machine's clock is too far from the server's: set it",
    "AuthorizationHeaderMalformed": "the region is wrong for this bucket",
    "PermanentRedirect": "the region or endpoint is wrong for this bucket",
    "NotImplemented": "the server lacks an operation that is needed (conditional writes?)",
}

_NOT_DONE_CODES = frozenset({
    "SlowDown", "Throttling", "ThrottlingException", "ThrottledException", "RequestLimitExceeded",
    "RequestThrottled", "RequestThrottledException", "TooManyRequestsException", "BandwidthLimitExceeded",
})  # fmt: skip

#: 4xx answers that a damaged or interrupted upload gets: sending it again helps.
_TRANSPORT_CODES = frozenset({"RequestTimeout", "BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch"})

_CREDENTIAL_ERRORS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.ProfileNotFound,
    boto.NoAuthTokenError,
    boto.UnauthorizedSSOTokenError,
)
_SETUP_ERRORS = (
    boto.ParamValidationError,
    boto.ValidationError,
    boto.NoRegionError,
    boto.InvalidProxiesConfigError,
)
_UNREACHED_ERRORS = (
    boto.EndpointConnectionError,
    boto.ConnectTimeoutError,
    boto.ProxyConnectionError,
    boto.CredentialRetrievalError,
)


def failure_of(error: Exception) -> Failure:
    """What `error`, one of `REQUEST_ERRORS`, means."""
    if isinstance(error, boto.ClientError):
        return _answered(error)
    if isinstance(error, _CREDENTIAL_ERRORS):
        return Failure(Meaning.CONFIGURATION, f"bad credentials: {_line(error)}")
    if isinstance(error, _SETUP_ERRORS):
        return Failure(Meaning.CONFIGURATION, _line(error))
    if isinstance(error, boto.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Failure(Meaning.CONFIGURATION, f"the server's certificate is not trusted: {_line(error)}")
    if isinstance(error, _UNREACHED_ERRORS):
        return Failure(Meaning.NOT_DONE, f"cannot reach the endpoint: {_line(error)}")
    return Failure(Meaning.UNKNOWN, _line(error))


def failure_of_code(code: str, message: str, status: int) -> Failure:
    """What an error code of S3 means, in a reply of that HTTP status or inside a batch (`status` 0)."""
    said = f"{code or status}: {message}" if message else str(code or status)
    if code in _CONFIGURATION:
        return Failure(Meaning.CONFIGURATION, f"{_CONFIGURATION[code]} ({code})")
    if code in _NOT_DONE_CODES or status == 429:
        return Failure(Meaning.NOT_DONE, f"throttled ({said})")
    if code == "NoSuchKey" or status == 404:
        return Failure(Meaning.MISSING, said)
    if code == "PreconditionFailed" or status == 412:
        return Failure(Meaning.REFUSED, said)
    # 409: a concurrent conditional write; the server does not say which of the two it kept.
    if status in (0, 408, 409) or status >= 500 or code in _TRANSPORT_CODES:
        return Failure(Meaning.UNKNOWN, said)
    return Failure(Meaning.CONFIGURATION, said)


def _answered(error: boto.ClientError) -> Failure:
    detail = error.response.get("Error", {})
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return failure_of_code(detail.get("Code", ""), detail.get("Message", ""), status)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
