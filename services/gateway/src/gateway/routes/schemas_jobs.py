"""The OpenAPI schemas of jobs and documents."""

from typing import Any

Schema = dict[str, Any]

MAX_READERS = 1000
"""The maximum number of users, and of groups, in an access list."""
_TEXT: Schema = {"type": "string"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_ERROR: Schema = {"type": "object", "properties": {"reason": _TEXT, "message": _TEXT}}
_IDS: Schema = {"type": "array", "items": _TEXT}
_FINAL_STATES = ["succeeded", "unchanged", "failed", "cancelled"]
_STATES = ["queued", "parsing", "indexing", *_FINAL_STATES]

JOB: Schema = {
    "type": "object",
    "properties": {
        "id": _TEXT,
        "state": {"type": "string", "enum": _STATES},
        "stage": {
            "type": "string",
            "enum": ["waiting", "fetching", *_STATES],
            "description": "The state; `waiting` while a dependency is unavailable, or while a change of readers "
            "waits for earlier jobs; `fetching` while the document is downloaded from its URL",
        },
        "percent": {"type": "integer", "minimum": 0, "maximum": 100},
        "index": _TEXT,
        "document_id": _TEXT,
        "sourcefile": _TEXT,
        "progress": {
            "type": "object",
            "properties": {
                **{f"{unit}_{count}": _COUNT for unit in ("pages", "chunks") for count in ("done", "total")},
                "documents_done": {**_COUNT, "description": "Only for jobs of texts"},
                "documents_total": {**_COUNT, "description": "Only for jobs of texts"},
            },
        },
        "error": {
            "oneOf": [_ERROR, {"type": "null"}],
            "description": "The error of a failed job; of a queued job, the error of the previous attempt",
        },
        "warnings": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "reason": _TEXT,
                    "message": _TEXT,
                    "page": {"type": ["integer", "null"], "description": "Number of the page, from 1"},
                    "part": {"type": ["string", "null"], "description": "Name of the part, such as an attachment"},
                },
            },
            "description": "The first 50 parts of the file that could not be read. The other parts are indexed",
        },
        "warning_count": {**_COUNT, "description": "Number of all warnings"},
        "waiting_since": {
            **_TIME,
            "type": ["string", "null"],
            "description": "Time since which the job waits for an unavailable dependency or for earlier jobs",
        },
        "given_up": {
            "type": "boolean",
            "description": "The job failed and is a dead letter. POST /jobs/dead/replay queues it again",
        },
        "attempt": {**_COUNT, "description": "Number of attempts"},
        "created_at": _TIME,
        "updated_at": _TIME,
        "trace_id": _TEXT,
    },
}
_NEXT: Schema = {"type": ["string", "null"], "description": "Token of the next page; null at the end"}
JOB_PAGE: Schema = {
    "type": "object",
    "properties": {"jobs": {"type": "array", "items": JOB}, "next_page_token": _NEXT},
}
DEAD_PAGE: Schema = {
    "type": "object",
    "properties": {
        "jobs": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {**_TEXT, "description": "Empty if the message contained no job"},
                    "index": _TEXT,
                    "document_id": _TEXT,
                    "sourcefile": _TEXT,
                    "error": _ERROR,
                    "attempt": _COUNT,
                    "died_at": _TIME,
                },
            },
        },
        "next_page_token": _NEXT,
    },
}
_DOCUMENT: Schema = {
    "type": "object",
    "properties": {
        "document_id": _TEXT,
        "sourcefile": _TEXT,
        "content_type": _TEXT,
        "sha256": {**_TEXT, "description": "SHA-256 of the file or the text"},
        "size_bytes": _COUNT,
        "has_original": {"type": "boolean", "description": "Whether the platform stores the uploaded file"},
        "oids": {**_IDS, "description": "Users who may see the document"},
        "groups": {
            **_IDS,
            "description": "Groups that may see the document; if both lists are empty, all users of the tenant may",
        },
        "updated_at": _TIME,
    },
}
DOCUMENT_PAGE: Schema = {
    "type": "object",
    "properties": {"documents": {"type": "array", "items": _DOCUMENT}, "next_page_token": _NEXT},
}
PASSAGES: Schema = {
    "type": "object",
    "properties": {
        "document": _DOCUMENT,
        "passages": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": _TEXT,
                    "number": {**_COUNT, "description": "Position of the passage in the document, from 0"},
                    "page": {"type": ["integer", "null"], "description": "Number of the page, from 1"},
                    "headings": {**_IDS, "description": "The headings above the passage, the outermost first"},
                    "text": _TEXT,
                    "sourcepage": {**_TEXT, "description": "Name of the passage's page in citations"},
                },
            },
        },
        "total": _COUNT,
    },
}
LANES: Schema = {
    "type": "object",
    "properties": {
        "lanes": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "lane": {"type": "integer", "minimum": 1},
                    "jobs": _COUNT,
                    "places": {"type": ["integer", "null"], "description": "null: no limit"},
                },
            },
        },
    },
}
ACCESS: Schema = {
    "type": "object",
    "required": ["oids", "groups"],
    "additionalProperties": False,
    "properties": {
        "oids": {**_IDS, "maxItems": MAX_READERS, "description": "Users who may see the document"},
        "groups": {
            **_IDS,
            "maxItems": MAX_READERS,
            "description": "Groups that may see the document; if both lists are empty, all users of the tenant may",
        },
    },
    "example": {"oids": ["ann"], "groups": []},
}
REPLAY: Schema = {
    "type": "object",
    "properties": {"job_ids": {**_IDS, "maxItems": 10_000}, "all": {"type": "boolean", "default": False}},
    "example": {"all": True},
}
REPLAYED: Schema = {"type": "object", "properties": {"replayed": _IDS, "not_found": _IDS}}
