"""The names of all stored and sent data: buckets, keys, objects, subjects, collections, point ids.

Only this module and `response_keys` build such names, so that the names of two tenants cannot collide. Names with
arbitrary characters (an index, a user, a file) are encoded with base64url. Key-value keys do not allow ``@``,
``|``, spaces or non-ASCII letters, and a dot or a wildcard would change the meaning of a subject.
"""

import base64
import hashlib
import re
import unicodedata
import uuid

from servicekit.errors import InvalidRequest

INGEST_STREAM = "CAUSEWAY_INGEST"
INGEST_DEAD_STREAM = "CAUSEWAY_INGEST_DEAD"
INGEST_LANES = 4  # parallel queues, the first for tenants with few waiting jobs (docs/ingest.md)
INGEST_SUBJECTS = "causeway.ingest.job.>"
INGEST_DEAD_SUBJECTS = "causeway.ingest.dead.>"
INGEST_WITHOUT_LANE = "causeway.ingest.job.*.*"  # subjects of jobs that a version without lanes accepted
INGEST_CONSUMER_WITHOUT_LANE = "ingest-workers"  # the only consumer of that version
JOBS_BUCKET = "causeway-jobs"
ORIGINALS_BUCKET = "causeway-originals"
HISTORY_BUCKET = "causeway-history"
PICTURES_BUCKET = "causeway-pictures"
API_KEYS_BUCKET = "causeway-api-keys"
QUOTAS_BUCKET = "causeway-quotas"
MEMORY_BUCKET = "causeway-memory"
LINK_KEYS_BUCKET = "causeway-link-keys"
CONTENT_KEYS_BUCKET = "causeway-content-keys"
GATEWAY_BEATS_SUBJECT = "causeway.gateways.beat"  # the heartbeats of gateways; not stored
USAGE_STREAM = "CAUSEWAY_USAGE"
USAGE_SUBJECTS = "causeway.usage.>"
AUDIT_STREAM = "CAUSEWAY_AUDIT"
AUDIT_SUBJECTS = "causeway.audit.>"
CANCELLED_CALLS_SUBJECT = "causeway.calls.cancelled"
"""The subject on which a gateway announces that an agent cancelled a call; not stored."""

EARLIER_REASONING = "earlier_reasoning"
"""The member of a message that contains the model's reasoning before the message. Model servers use other names."""

PART_OF = "part_of"
PART_OF_ID = "part_of_id"
"""Metadata of a file within a file, for example an attachment: name and id of the outer file."""

_INDEX_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_MAX_NAME_BYTES = 64  # bytes; the token of a longer name is its hash
_OWN = "own:"
_ISSUED = "oidc:"
_POINTS = uuid.UUID("6f0e9b4c-8d0e-5d43-9a55-0c5f9a4b1f11")
_DOCUMENTS = uuid.uuid5(_POINTS, "documents")


def token(text: str) -> str:
    """Return any text as one token of a subject, key, object or directory name; an empty text becomes ``-``.

    A long text becomes ``=`` and its digest; no other token begins with ``=``. File names are limited to 255 bytes,
    and NATS closes the connection for a subject of more than 4 KiB.
    """
    raw = text.encode(errors="surrogatepass")
    if len(raw) > _MAX_NAME_BYTES:
        return "=" + _base64url(hashlib.sha256(raw).digest())
    return _base64url(raw) or "-"


def index_name(name: str, field: str = "index") -> str:
    """Return the name if it is a valid index name.

    Args:
        name: The name to check.
        field: Path of the request's field with the name.

    Raises:
        InvalidRequest: The name does not consist of 1 to 128 letters, digits, ``_``, ``.`` or ``-``, or does not
            begin with a letter or digit.
    """
    if not _INDEX_NAME.fullmatch(name):
        raise InvalidRequest(
            f"Invalid index name: {name[:200]!r}. A name has 1 to 128 letters, digits, '_', '.' or '-' and begins "
            "with a letter or digit.",
            field=field,
        )
    return name


def collection(tenant: str, index: str) -> str:
    """Return the directory or collection of a tenant's index."""
    return f"{token(tenant)}.{token(index)}"


def ingest_subject(lane: int, tenant: str, index: str) -> str:
    """Return the subject of a lane's jobs for an index."""
    return f"causeway.ingest.job.{lane}.{token(tenant)}.{token(index)}"


def ingest_lane(lane: int) -> str:
    """Return the pattern of a lane's subjects, which does not match subjects without a lane."""
    return f"causeway.ingest.job.{lane}.*.*"


def ingest_consumer(lane: int) -> str:
    """Return the name of the consumer that all workers share for a lane."""
    return f"ingest-workers-{lane}"


def ingest_jobs_of(tenant: str, index: str = "") -> str:
    """Return the pattern of the subjects of a tenant's jobs, or of its jobs for one index, in all lanes."""
    return f"causeway.ingest.job.*.{token(tenant)}.{token(index) if index else '*'}"


def ingest_lane_of(subject: str) -> int:
    """Return the lane of an `ingest_subject`."""
    return int(subject.split(".")[3])


def ingest_dead_subject(tenant: str, index: str) -> str:
    """Return the subject of an index's dead letters."""
    return f"causeway.ingest.dead.{token(tenant)}.{token(index)}"


def ingest_dead_subjects_of(tenant: str) -> str:
    """Return the pattern of the subjects of a tenant's dead letters."""
    return f"causeway.ingest.dead.{token(tenant)}.*"


def ingest_dead_subject_of(subject: str) -> str:
    """Return the `ingest_dead_subject` for an `ingest_subject`, with or without a lane."""
    return INGEST_DEAD_SUBJECTS.removesuffix(">") + ".".join(subject.split(".")[-2:])


def job_key(tenant: str, job_id: str) -> str:
    """Return the key of a job's state."""
    return f"{token(tenant)}.{token(job_id)}"


def job_keys(tenant: str) -> str:
    """Return the pattern of the keys of a tenant's jobs."""
    return f"{token(tenant)}.*"


def original_object(tenant: str, index: str, job_id: str) -> str:
    """Return the name of the object with the original of a job's document."""
    return f"{token(tenant)}.{token(index)}.{job_id}"


def originals_of(tenant: str) -> str:
    """Return the prefix of the names of a tenant's originals."""
    return f"{token(tenant)}."


def is_original_in(tenant: str, index: str, name: str) -> bool:
    """Return whether an object is an original of a tenant's index."""
    return name.startswith(f"{token(tenant)}.{token(index)}.")


def texts_object(tenant: str, job_id: str) -> str:
    """Return the name of the object with a job's texts, which is removed after the job."""
    return f"{token(tenant)}.texts.{job_id}"


def picture_key(tenant: str, index: str, document: str, sha256: str, page: int) -> str:
    """Return the key of a page's picture. It contains the content's hash: versions do not share pictures."""
    return f"{document_pictures(tenant, index, document, sha256).removesuffix('>')}{page}"


def document_pictures(tenant: str, index: str, document: str, sha256: str = "") -> str:
    """Return the pattern of the keys of a document's pictures: those of one version, or all."""
    version = f"{sha256}." if sha256 else ""
    return f"{token(tenant)}.{token(index)}.{token(document)}.{version}>"


def index_pictures(tenant: str, index: str) -> str:
    """Return the pattern of the keys of all pictures of an index."""
    return f"{token(tenant)}.{token(index)}.>"


def history_of(tenant: str, user: str, part: str = "*") -> str:
    """Return the pattern of the keys of a user's conversations: of all parts, or only ``head`` or ``answers``."""
    return f"{part}.{token(tenant)}.{token(user)}.*"


def history_head_key(tenant: str, user: str, conversation: str) -> str:
    """Return the key of a conversation's entry in lists."""
    return f"head.{token(tenant)}.{token(user)}.{token(conversation)}"


def history_answers_key(tenant: str, user: str, conversation: str) -> str:
    """Return the key of a conversation's messages."""
    return f"answers.{token(tenant)}.{token(user)}.{token(conversation)}"


def memory_key(tenant: str, owner: str, profile: str, session: str) -> str:
    """Return the key of the messages of a front end's session."""
    return f"{token(tenant)}.{token(owner)}.{token(profile)}.{token(session)}"


def user_pattern(tenant: str, owner: str) -> str:
    """Return the pattern of a user's keys, in the bucket of responses and conversations and in that of sessions."""
    return f"{token(tenant)}.{token(owner)}.>"


def quota_replica_key(replica: str) -> str:
    """Return the key with which a gateway replica announces itself to the other replicas."""
    return f"replica.{replica}"


def quota_holder(kind: str, tenant: str, name: str) -> str:
    """Return the part of a `quota_key` that names the holder of the quota.

    Args:
        kind: ``tenant``, ``key`` or ``user``.
        tenant: The tenant, or the tenant of the key or user.
        name: The name of the key or user; empty for a tenant.
    """
    return f"{kind}.{token(tenant)}.{token(name)}"


def quota_key(replica: str, holder: str) -> str:
    """Return the key of the usage that a gateway replica recorded for a `quota_holder`."""
    return f"used.{replica}.{holder}"


def quota_parts(key: str) -> tuple[str, str]:
    """Return the replica and the holder of a `quota_key`; the holder of a `quota_replica_key` is empty."""
    kind, _, rest = key.partition(".")
    replica, _, holder = rest.partition(".")
    return replica, holder if kind == "used" else ""


def usage_subject(tenant: str) -> str:
    """Return the subject of a tenant's usage records."""
    return f"causeway.usage.{token(tenant)}"


def audit_subject(tenant: str, detector: str, verdict: str) -> str:
    """Return the subject of a tenant's audit records of a detector and a verdict."""
    return f"causeway.audit.{token(tenant)}.{token(detector)}.{verdict}"


def file_name(name: str) -> str:
    """Return the name of a file in Unicode normalization form C.

    Some file systems, for example of macOS, use the decomposed form D. The same file must have the same name from
    all machines, so that a new upload replaces the earlier one.
    """
    return unicodedata.normalize("NFC", name)


def document_id(sourcefile: str, owner: str = "") -> str:
    """Return the default id of an uploaded document, derived from its name, so that a new upload replaces it.

    Args:
        sourcefile: The name of the document.
        owner: The user who owns the document. Documents of different users do not replace each other. Empty: the
            document has no owner.
    """
    text = f"{owner}\0{sourcefile}" if owner else sourcefile
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def file_id(index: str, document: str) -> str:
    """Return the id of a document for OpenAI-compatible file APIs, derived from its index and its id."""
    return "file-" + hashlib.sha256(f"{index}\0{document}".encode(errors="surrogatepass")).hexdigest()[:32]


def member_id(document: str, name: str) -> str:
    """Return the id of a file within a file, for example an attachment of a mail.

    Args:
        document: Id of the outer document.
        name: The file's name within it.
    """
    return hashlib.sha256(f"{document}\0\0{name}".encode(errors="surrogatepass")).hexdigest()


def member_object(outer: str, number: int) -> str:
    """Return the name of the object of a file within a file, derived from the outer file's object name."""
    return f"{outer}-{number}"


def user_of(issuer: str, user: str) -> str:
    """Return the name of an issuer's user. Users of different issuers and of API keys never have the same name."""
    return f"{_ISSUED}{issuer} {user}"  # the address of an issuer has no space


def is_issued(user: str) -> bool:
    """Return whether a name belongs to the users of some issuer; no API key may have such a user."""
    return user.startswith(_ISSUED)


def own_oid(user: str) -> str:
    """Return the id for the access list of a user's own document; only that user has this id.

    Other ids of a user may be shared, or may be the name of another user.
    """
    return f"{_OWN}{user}"


def is_own_oid(oid: str) -> bool:
    """Return whether an id gives access to a user's own documents; no issuer may assign such an id."""
    return oid.startswith(_OWN)


def point_id(collection_name: str, document: str, generation: int, number: int, text: str) -> uuid.UUID:
    """Return the id of a chunk's point. The id depends only on the chunk, so that a repeated write changes nothing.

    The id includes the generation, because the chunks of two generations coexist until the newer one is committed.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()
    return uuid.uuid5(_POINTS, "\0".join((collection_name, document, str(generation), str(number), digest)))


def document_point_id(collection_name: str, document: str) -> uuid.UUID:
    """Return the id of a document's record in the catalogue."""
    return uuid.uuid5(_DOCUMENTS, "\0".join((collection_name, document)))


def mark_point_id(collection_name: str, document: str) -> uuid.UUID:
    """Return the id of a document's marker. While the marker exists, the chunks may differ from the record."""
    return document_point_id(f"{collection_name}/mark", document)


def creation_point_id(collection_name: str) -> uuid.UUID:
    """Return the id of the point with the lease for creating a collection."""
    return document_point_id(f"{collection_name}/creation", "")


def index_point_id(collection_name: str) -> uuid.UUID:
    """Return the id of a collection's own record on a server."""
    return document_point_id(f"{collection_name}/index", "")


def server_alias(prefix: str, tenant: str, index: str) -> str:
    """Return the alias of an index on a server that other applications may also use."""
    return f"{prefix}.{collection(tenant, index)}"


def snapshots(tenant: str) -> str:
    """Return the directory of a tenant's snapshots."""
    return token(tenant)


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
