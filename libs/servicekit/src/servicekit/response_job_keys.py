"""The names of a tenant's responses, and of the queue of background responses."""

from servicekit.keys import token

RESPONSE_JOB_STREAM = "CAUSEWAY_RESPONSE_JOBS"
RESPONSE_JOB_SUBJECTS = "causeway.responses.job.>"
RESPONSE_RUNNERS = "response-runners"
"""The consumer that all gateways share for background responses."""


def response_job(tenant: str, name: str) -> str:
    """Return the subject of a background response."""
    return f"causeway.responses.job.{token(tenant)}.{name}"


def response_jobs_of(tenant: str) -> str:
    """Return the pattern of the subjects of a tenant's waiting and running background responses."""
    return f"causeway.responses.job.{token(tenant)}.*"


def tenant_responses(tenant: str, name: str = "*") -> str:
    """Return the pattern of the keys of a tenant's responses and conversations, or of the one with a name."""
    return f"{token(tenant)}.*.{name}"
