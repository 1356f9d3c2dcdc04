"""What a profile says of the Responses API."""

import enum


class UnknownTools(enum.Enum):
    """What becomes of tools of the Responses API that are not offered here."""

    DROP = "drop"
    REFUSE = "refuse"


class ResponsePolicy(enum.Enum):
    """Which responses of the Responses API are stored."""

    OFF = "off"
    REQUESTED = "requested"
    """Those whose requests say so."""
    DEFAULT = "default"
    """Those whose requests do not say otherwise."""
