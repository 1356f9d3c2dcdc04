"""Every name under which something is stored or sent: buckets, keys, objects, subjects, collections, point ids.

Built here and nowhere else, so that a tenant's names can never meet another's. Names that may hold anything (an
index, a user, a file) are encoded with base64url: key-value keys refuse ``@``, ``|``, spaces and umlauts, and a
dot or a wildcard in a subject would change its meaning.
"""

import base64
import hashlib
import re
import uuid

from servicekit.errors import InvalidRequest

INGEST_STREAM = "CAUSEWAY_INGEST"
INGEST_DEAD_STREAM = "CAUSEWAY_INGEST_DEAD"
INGEST_LANES = 4  # queues side by side, the first for tenants that have little in it (docs/ingest.md)
INGEST_SUBJECTS = "causeway.ingest.job.>"
INGEST_DEAD_SUBJECTS = "causeway.ingest.dead.>"
INGEST_WITHOUT_LANE = "causeway.ingest.job.*.*"  # subjects of jobs that a version without lanes accepted
INGEST_CONSUMER_WITHOUT_LANE = "ingest-workers"  # that version's only one
JOBS_BUCKET = "causeway-jobs"
ORIGINALS_BUCKET = "causeway-originals"
HISTORY_BUCKET = "causeway-history"
PICTURES_BUCKET = "causeway-pictures"
API_KEYS_BUCKET = "causeway-api-keys"
QUOTAS_BUCKET = "causeway-quotas"
MEMORY_BUCKET = "causeway-memory"
RESPONSES_BUCKET = "causeway-responses"
LARGE_RESPONSES_BUCKET = "causeway-large-responses"
LINK_KEYS_BUCKET = "causeway-link-keys"
CONTENT_KEYS_BUCKET = "causeway-content-keys"
GATEWAY_BEATS_SUBJECT = "causeway.gateways.beat"  # where each gateway says that it is there; not stored
RESPONSE_LOG_STREAM = "CAUSEWAY_RESPONSE_LOG"
RESPONSE_LOG_SUBJECTS = "causeway.responses.log.>"
RESPONSE_LIVE_SUBJECTS = "causeway.responses.live.>"
"""Where NATS sends again what it took for a log; not stored."""
USAGE_STREAM = "CAUSEWAY_USAGE"
USAGE_SUBJECTS = "causeway.usage.>"
AUDIT_STREAM = "CAUSEWAY_AUDIT"
AUDIT_SUBJECTS = "causeway.audit.>"
CANCELLED_CALLS_SUBJECT = "causeway.calls.cancelled"
"""Where a gateway tells the others which call of an agent was cancelled; not stored."""

EARLIER_REASONING = "earlier_reasoning"
"""The member of a message that has what a model thought before it; a model server gets it by another name."""

PART_OF = "part_of"
PART_OF_ID = "part_of_id"
"""Metadata of a file within a file, as of an attachment: name and id of the outer one."""

_INDEX_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_LONGEST_NAME = 64  # bytes that stand in a token as they are
_OWN = "own:"
_ISSUED = "oidc:"
_POINTS = uuid.UUID("6f0e9b4c-8d0e-5d43-9a55-0c5f9a4b1f11")
_DOCUMENTS = uuid.uuid5(_POINTS, "documents")


def token(text: str) -> str:
    """Any text as one token of a subject, key, object or directory name; the empty text is ``-``.

    A long text is its digest behind a ``=``, which no other token begins with: a file name ends at 255 bytes, and
    a server drops the connection over a subject of more than 4 KiB.
    """
    raw = text.encode(errors="surrogatepass")
    if len(raw) > _LONGEST_NAME:
        return "=" + _base64url(hashlib.sha256(raw).digest())
    return _base64url(raw) or "-"


def index_name(name: str, field: str = "index") -> str:
    """The name itself, once it is known to be one.

    Args:
        name: What should be one.
        field: Path of the request's field that it came in.

    Raises:
        InvalidRequest: Not 1 to 128 letters, digits, ``_``, ``.`` or ``-``, beginning with a letter or digit.
    """
    if not _INDEX_NAME.fullmatch(name):
        raise InvalidRequest(
            f"Invalid index name: {name[:200]!r}. A name has 1 to 128 letters, digits, '_', '.' or '-' and begins "
            "with a letter or digit.",
            field=field,
        )
    return name


def collection(tenant: str, index: str) -> str:
    """Directory or collection that holds an index of a tenant."""
    return f"{token(tenant)}.{token(index)}"


def ingest_subject(lane: int, tenant: str, index: str) -> str:
    """Subject of the jobs of a lane that write to an index."""
    return f"causeway.ingest.job.{lane}.{token(tenant)}.{token(index)}"


def ingest_lane(lane: int) -> str:
    """Pattern of the subjects of a lane, which matches no subject without a lane."""
    return f"causeway.ingest.job.{lane}.*.*"


def ingest_consumer(lane: int) -> str:
    """The consumer that all workers share for a lane."""
    return f"ingest-workers-{lane}"


def ingest_jobs_of(tenant: str, index: str = "") -> str:
    """Pattern of the subjects of a tenant's jobs, or of those that write to one of its indexes; of all lanes."""
    return f"causeway.ingest.job.*.{token(tenant)}.{token(index) if index else '*'}"


def ingest_lane_of(subject: str) -> int:
    """The lane of an `ingest_subject`."""
    return int(subject.split(".")[3])


def ingest_dead_subject(tenant: str, index: str) -> str:
    """Subject of the jobs that were given up."""
    return f"causeway.ingest.dead.{token(tenant)}.{token(index)}"


def ingest_dead_subjects_of(tenant: str) -> str:
    """Pattern of the subjects of a tenant's jobs that were given up."""
    return f"causeway.ingest.dead.{token(tenant)}.*"


def ingest_dead_subject_of(subject: str) -> str:
    """`ingest_dead_subject` of the tenant and the index that an `ingest_subject` names, with or without a lane."""
    return INGEST_DEAD_SUBJECTS.removesuffix(">") + ".".join(subject.split(".")[-2:])


def job_key(tenant: str, job_id: str) -> str:
    """Key of a job's state."""
    return f"{token(tenant)}.{token(job_id)}"


def job_keys(tenant: str) -> str:
    """Pattern of the keys of a tenant's jobs."""
    return f"{token(tenant)}.*"


def original_object(tenant: str, index: str, job_id: str) -> str:
    """Object that holds the original bytes that a job brought: the job's own, and then its document's."""
    return f"{token(tenant)}.{token(index)}.{job_id}"


def originals_of(tenant: str) -> str:
    """What the names of a tenant's originals begin with."""
    return f"{token(tenant)}."


def is_original_in(tenant: str, index: str, name: str) -> bool:
    """Whether an object is an original that was brought into an index of a tenant."""
    return name.startswith(f"{token(tenant)}.{token(index)}.")


def texts_object(tenant: str, job_id: str) -> str:
    """Object that holds the texts of a job, and goes when the job is over."""
    return f"{token(tenant)}.texts.{job_id}"


def picture_key(tenant: str, index: str, document: str, sha256: str, page: int) -> str:
    """Key of a page's picture. The content is part of it, so that a version never shows another one's pages."""
    return f"{document_pictures(tenant, index, document, sha256).removesuffix('>')}{page}"


def document_pictures(tenant: str, index: str, document: str, sha256: str = "") -> str:
    """Pattern of the keys of a document's pictures: of one version, or of all."""
    version = f"{sha256}." if sha256 else ""
    return f"{token(tenant)}.{token(index)}.{token(document)}.{version}>"


def index_pictures(tenant: str, index: str) -> str:
    """Pattern of the keys of all pictures of an index."""
    return f"{token(tenant)}.{token(index)}.>"


def history_of(tenant: str, user: str, part: str = "*") -> str:
    """Pattern of the keys of a user's conversations: all of them, or ``head``, those that name one."""
    return f"{part}.{token(tenant)}.{token(user)}.*"


def history_head_key(tenant: str, user: str, conversation: str) -> str:
    """Key of what a list says of a conversation."""
    return f"head.{token(tenant)}.{token(user)}.{token(conversation)}"


def history_answers_key(tenant: str, user: str, conversation: str) -> str:
    """Key of what was said in a conversation."""
    return f"answers.{token(tenant)}.{token(user)}.{token(conversation)}"


def memory_key(tenant: str, owner: str, profile: str, session: str) -> str:
    """Key of what was said in a session with a front end."""
    return f"{token(tenant)}.{token(owner)}.{token(profile)}.{token(session)}"


def of_user(tenant: str, owner: str) -> str:
    """Pattern of the keys of a user's responses and conversations, or of the user's sessions."""
    return f"{token(tenant)}.{token(owner)}.>"


def response_key(tenant: str, owner: str, name: str) -> str:
    """Key of a response or a conversation, whose name is an id that the gateway gave."""
    return f"{token(tenant)}.{token(owner)}.{name}"


def large_response(key: str, version: str = "*") -> str:
    """Subject of the pieces of a version of a large response, or the pattern of those of all its versions.

    Args:
        key: The `response_key`, or `of_user` for the responses of a user.
        version: Its name.
    """
    pieces = f"$O.{LARGE_RESPONSES_BUCKET}.C.{key}"
    return pieces if key.endswith(">") else f"{pieces}.{version}"


def response_log(tenant: str, owner: str, name: str) -> str:
    """Subject of the events of a response."""
    return f"causeway.responses.log.{response_key(tenant, owner, name)}"


def response_live(tenant: str, owner: str, name: str) -> str:
    """Subject on which NATS sends the events of a response again once they are stored."""
    return f"causeway.responses.live.{response_key(tenant, owner, name)}"


def response_logs_of(tenant: str, owner: str = "") -> str:
    """Pattern of the subjects of the events of a tenant's responses, or of those of one user."""
    return f"causeway.responses.log.{token(tenant)}.{token(owner) if owner else '*'}.*"


def quota_replica_key(replica: str) -> str:
    """Key by which the others know that a replica of the gateway is there."""
    return f"replica.{replica}"


def quota_holder(kind: str, tenant: str, name: str) -> str:
    """Who has a quota.

    Args:
        kind: ``tenant``, ``key`` or ``user``.
        tenant: Which one, or whose key or user.
        name: Of the key or the user; empty for a tenant.
    """
    return f"{kind}.{token(tenant)}.{token(name)}"


def quota_key(replica: str, holder: str) -> str:
    """Key of what a replica of the gateway let a `quota_holder` use."""
    return f"used.{replica}.{holder}"


def quota_parts(key: str) -> tuple[str, str]:
    """The replica and the holder that a `quota_key` names; no holder where it is a `quota_replica_key`."""
    kind, _, rest = key.partition(".")
    replica, _, holder = rest.partition(".")
    return replica, holder if kind == "used" else ""


def usage_subject(tenant: str) -> str:
    """Subject of what a tenant used."""
    return f"causeway.usage.{token(tenant)}"


def audit_subject(tenant: str, detector: str, verdict: str) -> str:
    """Subject of what a detector found for a tenant, and what came of it."""
    return f"causeway.audit.{token(tenant)}.{token(detector)}.{verdict}"


def document_id(sourcefile: str, owner: str = "") -> str:
    """Id of a document that came as a file and was given none: its name decides, so that it replaces itself.

    Args:
        sourcefile: Its name.
        owner: The user whose own document it is; users' documents do not replace each other's. Empty: nobody's.
    """
    named = f"{owner}\0{sourcefile}" if owner else sourcefile
    return hashlib.sha256(named.encode(errors="surrogatepass")).hexdigest()


def file_id(index: str, document: str) -> str:
    """Id of a document for clients that know files of OpenAI's: it depends on the document alone."""
    return "file-" + hashlib.sha256(f"{index}\0{document}".encode(errors="surrogatepass")).hexdigest()[:32]


def member_id(document: str, name: str) -> str:
    """Id of a file within a file, as an attachment of a mail.

    Args:
        document: Id of the outer one.
        name: Its name within.
    """
    return hashlib.sha256(f"{document}\0\0{name}".encode(errors="surrogatepass")).hexdigest()


def member_object(outer: str, number: int) -> str:
    """Object that holds a file that came within another, whose object is given."""
    return f"{outer}-{number}"


def user_of(issuer: str, user: str) -> str:
    """Name of a user whom a provider names: different issuers, and API keys, never share one."""
    return f"{_ISSUED}{issuer} {user}"  # the address of an issuer has no space


def is_issued(user: str) -> bool:
    """Return whether a name belongs to the users of some issuer; no API key may have such a user."""
    return user.startswith(_ISSUED)


def own_oid(user: str) -> str:
    """What an access list names where a document is a user's own, and what that user alone holds.

    It is none of the ids that users have elsewhere: these may be shared, or be another one's name.
    """
    return f"{_OWN}{user}"


def is_own_oid(oid: str) -> bool:
    """Return whether an id opens the documents of one user's own; no issuer may give such an id out."""
    return oid.startswith(_OWN)


def point_id(collection_name: str, document: str, generation: int, number: int, text: str) -> uuid.UUID:
    """Id of a chunk's point: depends on what it is alone, so that writing it again changes nothing.

    The generation is part of it, because the chunks of two generations stand beside each other until the newer
    one is committed.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()
    return uuid.uuid5(_POINTS, "\0".join((collection_name, document, str(generation), str(number), digest)))


def document_point_id(collection_name: str, document: str) -> uuid.UUID:
    """Id of the catalogue's record of a document."""
    return uuid.uuid5(_DOCUMENTS, "\0".join((collection_name, document)))


def mark_point_id(collection_name: str, document: str) -> uuid.UUID:
    """Id of the note that a document's chunks may not agree with its record."""
    return document_point_id(f"{collection_name}/mark", document)


def index_point_id(collection_name: str) -> uuid.UUID:
    """Id of what a collection on a server says of itself."""
    return document_point_id(f"{collection_name}/index", "")


def server_alias(prefix: str, tenant: str, index: str) -> str:
    """Name under which an index is found on a server that others may use, too."""
    return f"{prefix}.{collection(tenant, index)}"


def snapshots(tenant: str) -> str:
    """Directory that holds a tenant's snapshots."""
    return token(tenant)


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
