"""The names of stored responses, of their events, and of the queue of background responses."""

from servicekit.keys import token

RESPONSES_BUCKET = "causeway-responses"
LARGE_RESPONSES_BUCKET = "causeway-large-responses"
RESPONSE_LOG_STREAM = "CAUSEWAY_RESPONSE_LOG"
RESPONSE_LOG_SUBJECTS = "causeway.responses.log.>"
RESPONSE_LIVE_SUBJECTS = "causeway.responses.live.>"
RESPONSE_JOB_STREAM = "CAUSEWAY_RESPONSE_JOBS"
RESPONSE_JOB_SUBJECTS = "causeway.responses.job.>"
RESPONSE_RUNNERS = "response-runners"
"""The consumer that all gateways share for background responses."""


def response_key(tenant: str, owner: str, name: str) -> str:
    """Return the key of a response or a conversation. The name is the id that the gateway assigned."""
    return f"{token(tenant)}.{token(owner)}.{name}"


def large_response(key: str, version: str = "*") -> str:
    """Return the subject of the pieces of one version of a large response, or the pattern for all versions.

    Args:
        key: The `response_key`, or `keys.user_pattern` for the responses of a user.
        version: The name of the version; `*`: all versions.
    """
    pieces = f"$O.{LARGE_RESPONSES_BUCKET}.C.{key}"
    return pieces if key.endswith(">") else f"{pieces}.{version}"


def response_log(tenant: str, owner: str, name: str) -> str:
    """Return the subject of the events of a response."""
    return f"causeway.responses.log.{response_key(tenant, owner, name)}"


def response_live(tenant: str, owner: str, name: str) -> str:
    """Return the subject on which NATS republishes the stored events of a response."""
    return f"causeway.responses.live.{response_key(tenant, owner, name)}"


def response_logs_of(tenant: str, owner: str = "") -> str:
    """Return the pattern of the `response_log` subjects of all responses of a tenant, or of one of its users."""
    return f"causeway.responses.log.{token(tenant)}.{token(owner) if owner else '*'}.*"


def response_job(tenant: str, name: str) -> str:
    """Return the subject of the job of a background response."""
    return f"causeway.responses.job.{token(tenant)}.{name}"


def response_jobs_of(tenant: str) -> str:
    """Return the pattern of the `response_job` subjects of all background responses of a tenant."""
    return f"causeway.responses.job.{token(tenant)}.*"


def tenant_responses(tenant: str, name: str = "*") -> str:
    """Return the pattern of the `response_key` keys of a tenant: of all names, or of one name."""
    return f"{token(tenant)}.*.{name}"
