"""The catalogue of the available detectors, with a cache of configured detectors."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence

from servicekit.errors import InvalidRequest, NotFound

from detection.detectors.factory import ConfiguredDetector, DetectorFactory
from detection.detectors.params import BadParam
from detection.domain import DetectorInfo, DetectorSpec, Health
from detection.moderation.rules import Rule

_MAX_RULES = 32
_CACHE_SIZE = 64  # the maximum number of cached detectors


def _no_remote_detectors() -> Sequence[DetectorFactory]:
    return ()


class Catalogue:
    """Builds the rules of requests. It caches recently used detectors, because compiling patterns takes time.

    Args:
        factories: The factories of the built-in detectors.
        remote: Returns the factories of the current remote detectors; a built-in detector with the same id takes
            precedence.
    """

    def __init__(
        self,
        factories: Sequence[DetectorFactory],
        remote: Callable[[], Sequence[DetectorFactory]] = _no_remote_detectors,
    ) -> None:
        self._built_in = {factory.detector_id: factory for factory in factories}
        self._remote = remote
        self._cache: OrderedDict[tuple[DetectorFactory, bytes], ConfiguredDetector] = OrderedDict()

    def rules(self, specs: Sequence[DetectorSpec]) -> tuple[Rule, ...]:
        """Return the rules of a request.

        Raises:
            NotFound: A detector does not exist.
            InvalidRequest: The request names no detector or too many, or a parameter is invalid. The error names
                the field.
        """
        if not 0 < len(specs) <= _MAX_RULES:
            raise InvalidRequest(f"`detectors` must name 1 to {_MAX_RULES} detectors.", field="detectors")
        rules = []
        for index, spec in enumerate(specs):
            detector = self._detector(spec, f"detectors[{index}].params")
            rules.append(
                Rule(
                    spec.detector_id,
                    detector.detector,
                    spec.action,
                    spec.on_error,
                    detector.replacement,
                    detector.threshold,
                    detector.about_answer,
                )
            )
        return tuple(rules)

    def info(self, detector_id: str) -> DetectorInfo:
        """Return the description of one detector.

        Raises:
            NotFound: The detector does not exist.
        """
        return self._factory(detector_id).info()

    def infos(self) -> list[DetectorInfo]:
        """Return the descriptions of all detectors, ordered by id."""
        return [factory.info() for factory in self._factories()]

    async def healths(self) -> list[Health]:
        """Return the health of each detector of `infos`."""
        return list(await asyncio.gather(*(factory.health() for factory in self._factories())))

    def _factories(self) -> list[DetectorFactory]:
        factories = {factory.detector_id: factory for factory in self._remote()} | self._built_in
        return [factories[detector_id] for detector_id in sorted(factories)]

    def _factory(self, detector_id: str) -> DetectorFactory:
        factory = self._built_in.get(detector_id)
        if factory is None:
            factory = next((remote for remote in self._remote() if remote.detector_id == detector_id), None)
        if factory is None:
            raise NotFound(f"detector `{detector_id}` not found", resource=detector_id)
        return factory

    def _detector(self, spec: DetectorSpec, field: str) -> ConfiguredDetector:
        factory = self._factory(spec.detector_id)
        key = (factory, spec.params)
        detector = self._cache.get(key)
        if detector is not None:
            self._cache.move_to_end(key)
            return detector
        try:
            detector = factory.make(spec.params)
        except BadParam as error:
            path = f"{field}.{error.path}" if error.path else field
            raise InvalidRequest(f"`{path}`: {error.message}", field=path) from error
        self._cache[key] = detector
        if len(self._cache) > _CACHE_SIZE:
            self._cache.popitem(last=False)
        return detector
