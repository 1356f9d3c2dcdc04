"""Which detectors there are, and those that were made lately."""

from collections import OrderedDict
from collections.abc import Sequence

from servicekit.errors import InvalidRequest, NotFound

from guardrails.detectors.kind import Kind
from guardrails.detectors.params import BadParam
from guardrails.detectors.port import Detector
from guardrails.domain import DetectorInfo, DetectorSpec
from guardrails.policy import Rule

_MOST_RULES = 16


class Catalogue:
    """Makes detectors as requests ask for them, and keeps the latest, because compiling patterns takes time.

    Args:
        kinds: What can be asked for.
        size: Detectors that are kept.
    """

    def __init__(self, kinds: Sequence[Kind], size: int) -> None:  # type: ignore[type-arg]  # of any parameters
        self._kinds = {kind.detector_id: kind for kind in kinds}
        self._size = size
        self._made: OrderedDict[tuple[str, bytes], tuple[Detector, str]] = OrderedDict()

    def rules(self, specs: Sequence[DetectorSpec]) -> tuple[Rule, ...]:
        """What the request asks for, ready to judge.

        Raises:
            NotFound: There is no such detector.
            InvalidRequest: No detector, too many, or a parameter is wrong; names the field.
        """
        if not 0 < len(specs) <= _MOST_RULES:
            raise InvalidRequest(f"`detectors` must name 1 to {_MOST_RULES} detectors.", field="detectors")
        rules = []
        for index, spec in enumerate(specs):
            detector, replacement = self._detector(spec, f"detectors[{index}].params")
            rules.append(Rule(spec.detector_id, detector, spec.action, spec.on_error, replacement))
        return tuple(rules)

    def infos(self) -> list[DetectorInfo]:
        """All detectors, ordered by id."""
        return [self._kinds[detector_id].info() for detector_id in sorted(self._kinds)]

    def _detector(self, spec: DetectorSpec, field: str) -> tuple[Detector, str]:
        key = (spec.detector_id, spec.params)
        made = self._made.get(key)
        if made is not None:
            self._made.move_to_end(key)
            return made
        kind = self._kinds.get(spec.detector_id)
        if kind is None:
            raise NotFound(f"detector `{spec.detector_id}` not found", resource=spec.detector_id)
        try:
            made = kind.make(spec.params)
        except BadParam as error:
            path = f"{field}.{error.path}" if error.path else field
            raise InvalidRequest(f"`{path}`: {error.message}", field=path) from error
        self._made[key] = made
        if len(self._made) > self._size:
            self._made.popitem(last=False)
        return made
