"""The front end profiles' file: YAML, validated when it is loaded, reloaded when it changes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field
from servicekit.errors import InvalidRequest
from servicekit.reloadable import Reloadable
from servicekit.yaml_file import Document, Key, of_setting

from gateway.domain import Detectors, Policy
from gateway.frontends.assistants import AssistantEntry, by_name
from gateway.frontends.detector_policy import PolicyEntry
from gateway.frontends.profile_entry import DEFAULT, SERVICE_POLICY, WORD, ProfileEntry
from gateway.frontends.profiles import Frontend, Frontends


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    policies: dict[Annotated[str, Field(pattern=f"^{WORD}$")], PolicyEntry] = {}
    assistants: list[AssistantEntry] = []
    frontends: list[ProfileEntry] = []


@dataclass(frozen=True, slots=True)
class Served:
    """Properties of the gateway that profiles are validated against.

    Attributes:
        segments: First segments of the gateway's own paths, which no mount may hide.
        dialects: The dialects that a profile may name.
        check_overrides: Raises `InvalidRequest` for an invalid setting; its ``field`` ends with the name.
        models: Returns the known names of the models.
    """

    segments: frozenset[str] = frozenset()
    dialects: frozenset[str] | None = None
    check_overrides: Callable[[Mapping[str, Any]], None] = lambda _: None
    models: Callable[[], frozenset[str]] = frozenset


def parse(raw: bytes, name: str, base: Frontend, served: Served) -> tuple[Frontend, ...]:
    """Parse the profiles of a file, without the detectors of the deployment's policy.

    Args:
        raw: The file's content.
        name: The name of the file in messages.
        base: The defaults of profiles.
        served: The gateway's properties.

    Raises:
        BadFile: The file is invalid; the message has the line and the key.
    """
    document = Document(raw, name)
    file = document.validated(_File)
    if SERVICE_POLICY in file.policies:
        raise document.wrong(("policies", SERVICE_POLICY), "the guardrails service's own policy has this name")
    known = {*file.policies, SERVICE_POLICY}
    for key, problem in (*_wrong_assistants(file, served), *_problems(file.frontends, served, known, base)):
        raise document.wrong(key, problem)
    policies = {name: entry.policy() for name, entry in file.policies.items()}
    base = replace(base, assistants=by_name(file.assistants))
    profiles = [profile.frontend(base, policies) for profile in file.frontends]
    if file.assistants and all(each.name != DEFAULT for each in profiles):
        profiles.append(base)  # the default profile needs them, too
    return tuple(profiles)


def _wrong_assistants(file: _File, served: Served) -> Iterable[tuple[Key, str]]:
    models = served.models()
    everywhere = {each.name for each in file.assistants}
    groups: list[tuple[Key, list[AssistantEntry], set[str]]] = [(("assistants",), file.assistants, set())]
    groups += [
        (("frontends", at, "assistants"), profile.assistants, everywhere)
        for at, profile in enumerate(file.frontends)
    ]
    for place, entries, elsewhere in groups:
        taken = set(elsewhere)
        for at, entry in enumerate(entries):
            key = (*place, at)
            if entry.name in models:
                yield (*key, "name"), f"a model is called '{entry.name}'"
            if entry.name in taken:
                yield (*key, "name"), f"another assistant is called '{entry.name}'"
            taken.add(entry.name)
            yield from _wrong_overrides(entry.overrides, key, served)


def _wrong_overrides(overrides: dict[str, Any], key: Key, served: Served) -> Iterable[tuple[Key, str]]:
    try:
        served.check_overrides(overrides)
    except InvalidRequest as error:
        name = (error.field or "").rpartition(".")[2]
        yield (*key, "overrides", name), error.message


def _problems(
    profiles: list[ProfileEntry], served: Served, policies: set[str], base: Frontend
) -> Iterable[tuple[Key, str]]:
    seen: dict[tuple[str, str], str] = {}
    for at, profile in enumerate(profiles):
        key = ("frontends", at)
        if profile.mount and profile.mount in served.segments:
            yield (*key, "mount"), f"the gateway's own paths begin with '{profile.mount}'"
        if served.dialects is not None and profile.dialect and profile.dialect not in served.dialects:
            yield (*key, "dialect"), f"unknown dialect; the dialects are {', '.join(sorted(served.dialects))}"
        if profile.policy and profile.policy not in policies:
            yield (*key, "policy"), f"unknown policy; the policies are {', '.join(sorted(policies))}"
        yield from _wrong_overrides(profile.overrides, key, served)
        for n, index in enumerate(profile.mcp.indexes):
            if not profile.reaches(index, base.default_index):
                yield (*key, "mcp", "indexes", n), "the profile does not let requests read this index"
        if profile.name != DEFAULT and not (profile.mount or profile.hosts or profile.origins):
            yield key, f"no request can reach '{profile.name}': it needs a mount, hosts or origins"
        taken: list[tuple[str, Key, str]] = [("name", (*key, "name"), profile.name)]
        taken += [("mount", (*key, "mount"), profile.mount)] if profile.mount else []
        taken += [("host", (*key, "hosts", n), host) for n, host in enumerate(profile.hosts)]
        taken += [("origin", (*key, "origins", n), origin) for n, origin in enumerate(profile.origins)]
        for kind, place, value in taken:
            if (kind, value) in seen:
                yield place, f"the {kind} '{value}' is taken by the profile '{seen[kind, value]}'"
            seen[kind, value] = profile.name


class FrontendsFile:
    """The profiles' file at runtime; an invalid file keeps the previous profiles.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: Reloadable[tuple[Frontend, ...]] | None = None

    def load(self, base: Frontend, served: Served) -> Callable[[], tuple[Frontend, ...]]:
        """Load the file for the first time.

        Args:
            base: The defaults of profiles.
            served: The gateway's properties.

        Returns:
            A function that returns the newest valid profiles.

        Raises:
            InvalidRequest: The file cannot be read, or is invalid.
        """
        with of_setting("frontends_file"):
            file = self._file = Reloadable(self._path, lambda raw: parse(raw, str(self._path), base, served))
        return lambda: file.current

    async def __aenter__(self) -> Self:
        """Start to watch the loaded file."""
        assert self._file is not None
        await self._file.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            await self._file.__aexit__(kind, error, traceback)


class Profiles:
    """All current profiles: the default one and those of the file, each with the deployment's policy.

    Args:
        default: The default profile, unless the file has one of this name.
        policy: The detectors that judge every request.
        others: The file's profiles.
        of_service: The guardrails service's policy, for profiles that name it; None while it is not known.
    """

    def __init__(
        self,
        default: Frontend,
        policy: Callable[[], Detectors],
        others: Callable[[], tuple[Frontend, ...]] = tuple,
        of_service: Callable[[], Policy | None] = lambda: None,
    ) -> None:
        self._default = default
        self._policy = policy
        self._others = others
        self._of_service = of_service
        self._made_of: tuple[Detectors, tuple[Frontend, ...], Policy | None] | None = None
        self._frontends = Frontends(default)

    def __call__(self) -> Frontends:
        """Return the snapshot; the same one until something changes."""
        others = self._others()
        of_service = self._of_service() if any(each.service_policy for each in others) else None
        parts = self._policy(), others, of_service
        if parts != self._made_of:
            policy = parts[0]
            guarded = [
                replace(each, detectors=policy + each.detectors)
                for each in (self._default, *(_with_policy(each, of_service) for each in others))
            ]
            default = next((each for each in guarded[1:] if each.name == DEFAULT), guarded[0])
            self._frontends = Frontends(default, [each for each in guarded[1:] if each is not default])
            self._made_of = parts
        return self._frontends


def _with_policy(profile: Frontend, of_service: Policy | None) -> Frontend:
    if not profile.service_policy:
        return profile
    if of_service is None:
        reason = "The policy of this front end is not known: the guardrails service has none, or cannot be asked."
        return replace(profile, unguarded=reason)
    return replace(
        profile,
        detectors=of_service.detectors + profile.detectors,
        blocked_message=profile.blocked_message if profile.answers_blocked else of_service.blocked_message,
    )
