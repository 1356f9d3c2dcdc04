"""The options of a profile for the Responses API."""

import enum


class UnknownTools(enum.Enum):
    """How to treat tools of the Responses API that the platform does not offer."""

    DROP = "drop"
    REFUSE = "refuse"


class ResponsePolicy(enum.Enum):
    """Which responses of the Responses API are stored."""

    OFF = "off"
    REQUESTED = "requested"
    """Responses whose requests set ``store``."""
    DEFAULT = "default"
    """All responses, except those whose requests set ``store`` to false."""
