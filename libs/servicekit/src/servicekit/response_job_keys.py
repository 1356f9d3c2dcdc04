"""The names of a tenant's responses, and of the queue of those that run in the background."""

from servicekit.keys import token

RESPONSE_JOB_STREAM = "CAUSEWAY_RESPONSE_JOBS"
RESPONSE_JOB_SUBJECTS = "causeway.responses.job.>"
RESPONSE_RUNNERS = "response-runners"
"""The consumer that all gateways share for the responses that run in the background."""


def response_job(tenant: str, name: str) -> str:
    """Subject of a response that is to run in the background."""
    return f"causeway.responses.job.{token(tenant)}.{name}"


def response_jobs_of(tenant: str) -> str:
    """Pattern of the subjects of a tenant's responses that wait or run in the background."""
    return f"causeway.responses.job.{token(tenant)}.*"


def tenant_responses(tenant: str, name: str = "*") -> str:
    """Pattern of the keys of a tenant's responses and conversations, or of the one that has a name."""
    return f"{token(tenant)}.*.{name}"
