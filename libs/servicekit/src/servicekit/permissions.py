"""The permissions of the services in NATS: each service may use only the streams and subjects that it needs.

Retriever, generator and guardrails do not use NATS. The operator, a person with the command line, may do
everything. https://docs.nats.io/running-a-nats-service/configuration/securing_nats/authorization
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from servicekit import keys, response_keys

GATEWAY = "gateway"
INGEST = "ingest"
OPERATOR = "operator"
USERS = (GATEWAY, INGEST, OPERATOR)


@dataclass(frozen=True, slots=True)
class Permissions:
    """The subjects of one user; a denial overrides the allowed patterns.

    Attributes:
        publish: Subjects to which the user may send.
        subscribe: Subjects from which the user may receive, in addition to its own inbox.
        deny_publish: Exceptions to ``publish``.
    """

    publish: tuple[str, ...]
    subscribe: tuple[str, ...] = ()
    deny_publish: tuple[str, ...] = ()


def _api(stream: str) -> tuple[str, ...]:
    """Return the subjects of JetStream's API for a stream and its consumers.

    Each pattern fixes the position of the stream's name. With a second ``*`` before the name, a pattern such as
    ``CONSUMER.*.*.NAME`` would also match another stream's consumer if the consumer is called ``NAME``.
    """
    calls = ("STREAM.*", "STREAM.MSG.*", "CONSUMER.*", "CONSUMER.MSG.NEXT", "CONSUMER.DURABLE.CREATE", "DIRECT.GET")
    return tuple(f"$JS.API.{call}.{stream}{rest}" for call in calls for rest in ("", ".>"))


def _stream(stream: str, *subjects: str) -> tuple[str, ...]:
    return (*_api(stream), f"$JS.FC.{stream}.>", *subjects)


def _bucket(bucket: str) -> tuple[str, ...]:
    return _stream(f"KV_{bucket}", f"$KV.{bucket}.>")


def _objects(bucket: str) -> tuple[str, ...]:
    return _stream(f"OBJ_{bucket}", f"$O.{bucket}.>")


# Only the operator may remove, export or import streams.
_OPERATOR_ONLY = (
    "$JS.API.STREAM.DELETE.>",
    "$JS.API.STREAM.SNAPSHOT.>",
    "$JS.API.STREAM.RESTORE.>",
)
# The gateway must not change the configuration of these streams. It may change the limits of usage and audit.
_FIXED_STREAMS = (
    keys.INGEST_STREAM,
    keys.INGEST_DEAD_STREAM,
    response_keys.RESPONSE_LOG_STREAM,
    response_keys.RESPONSE_JOB_STREAM,
    f"OBJ_{keys.ORIGINALS_BUCKET}",
    f"OBJ_{response_keys.LARGE_RESPONSES_BUCKET}",
    *(
        f"KV_{bucket}"
        for bucket in (
            keys.JOBS_BUCKET,
            keys.PICTURES_BUCKET,
            keys.HISTORY_BUCKET,
            keys.API_KEYS_BUCKET,
            keys.QUOTAS_BUCKET,
            keys.MEMORY_BUCKET,
            response_keys.RESPONSES_BUCKET,
            keys.LINK_KEYS_BUCKET,
            keys.CONTENT_KEYS_BUCKET,
        )
    ),
)
_KEEP_API_KEYS = tuple(f"$JS.API.STREAM.{call}.KV_{keys.API_KEYS_BUCKET}" for call in ("PURGE", "MSG.DELETE"))
# Requests for the account's limits, and for the name of the stream that has a subject. Clients send both.
_LOOKUPS = ("$JS.API.INFO", "$JS.API.STREAM.NAMES")
_FETCH_JOBS = (f"$JS.API.CONSUMER.MSG.NEXT.{keys.INGEST_STREAM}.>",)

PERMISSIONS: Mapping[str, Permissions] = {
    # The gateway submits and watches ingest jobs, but does not process them. It processes response jobs, and stores
    # originals, history, and the keys of links and contents. It reads API keys. It reads and removes pictures.
    GATEWAY: Permissions(
        publish=(
            *_LOOKUPS,
            *_stream(keys.INGEST_STREAM, keys.INGEST_SUBJECTS),
            *_stream(keys.INGEST_DEAD_STREAM),
            *_bucket(keys.JOBS_BUCKET),
            *_objects(keys.ORIGINALS_BUCKET),
            *_stream(f"KV_{keys.PICTURES_BUCKET}"),
            *_bucket(keys.HISTORY_BUCKET),
            *_stream(f"KV_{keys.API_KEYS_BUCKET}"),
            *_bucket(keys.QUOTAS_BUCKET),
            *_bucket(keys.MEMORY_BUCKET),
            *_bucket(response_keys.RESPONSES_BUCKET),
            *_objects(response_keys.LARGE_RESPONSES_BUCKET),
            *_bucket(keys.LINK_KEYS_BUCKET),
            *_bucket(keys.CONTENT_KEYS_BUCKET),
            *_stream(response_keys.RESPONSE_LOG_STREAM, response_keys.RESPONSE_LOG_SUBJECTS),
            *_stream(response_keys.RESPONSE_JOB_STREAM, response_keys.RESPONSE_JOB_SUBJECTS),
            f"$JS.ACK.{response_keys.RESPONSE_JOB_STREAM}.>",
            *_stream(keys.USAGE_STREAM, keys.USAGE_SUBJECTS),
            *_stream(keys.AUDIT_STREAM, keys.AUDIT_SUBJECTS),
            keys.CANCELLED_CALLS_SUBJECT,
            keys.GATEWAY_BEATS_SUBJECT,
        ),
        # Updates of jobs and responses, and other gateways' cancellations and heartbeats.
        subscribe=(
            f"$KV.{keys.JOBS_BUCKET}.>",
            response_keys.RESPONSE_LIVE_SUBJECTS,
            keys.CANCELLED_CALLS_SUBJECT,
            keys.GATEWAY_BEATS_SUBJECT,
        ),
        deny_publish=(
            *_OPERATOR_ONLY,
            *(f"$JS.API.STREAM.UPDATE.{stream}" for stream in _FIXED_STREAMS),
            *_KEEP_API_KEYS,
            *_FETCH_JOBS,
        ),
    ),
    # Workers process ingest jobs and write dead letters. They see neither conversations nor keys.
    INGEST: Permissions(
        publish=(
            *_LOOKUPS,
            *_stream(keys.INGEST_STREAM),
            f"$JS.ACK.{keys.INGEST_STREAM}.>",
            *_stream(keys.INGEST_DEAD_STREAM, keys.INGEST_DEAD_SUBJECTS),
            *_bucket(keys.JOBS_BUCKET),
            *_objects(keys.ORIGINALS_BUCKET),
            *_bucket(keys.PICTURES_BUCKET),
        ),
        deny_publish=(*_OPERATOR_ONLY, "$JS.API.STREAM.UPDATE.>"),
    ),
    OPERATOR: Permissions(publish=(">",), subscribe=(">",)),
}


def authorization(passwords: Mapping[str, str] | None = None) -> str:
    """Return the ``authorization`` block of a nats-server's configuration.

    Args:
        passwords: The password of each user; None if certificates identify them (``verify_and_map``).
    """
    lines = ["authorization {", "  users: ["]
    for user in USERS:
        permissions = PERMISSIONS[user]
        inbox = (f"_INBOX_{user}.>",) if ">" not in permissions.subscribe else ()
        password = f" password: {_quoted(passwords[user])}," if passwords is not None else ""
        lines += [
            f"    {{ user: {user},{password} permissions: {{",
            f"        publish: {{ allow: {_list(permissions.publish)}, deny: {_list(permissions.deny_publish)} }}",
            f"        subscribe: {{ allow: {_list((*permissions.subscribe, *inbox))} }}",
            "    } }",
        ]
    return "\n".join([*lines, "  ]", "}", ""])


def _list(subjects: Iterable[str]) -> str:
    return f"[{', '.join(_quoted(subject) for subject in subjects)}]"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
