"""The front end profiles' file: YAML, checked when it is read, read again when it changes."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from servicekit.errors import InvalidRequest
from servicekit.reloadable import Reloadable
from servicekit.yaml_file import Document, Key, of_setting

from gateway.domain import Detectors, Policy
from gateway.frontends.detector_policy import DetectorLists, PolicyEntry
from gateway.frontends.profiles import ANY_ORIGIN, Audit, Frontend, Frontends, GuardrailsWire
from gateway.frontends.retrieval_block import RetrievalEntry, index_name

SERVICE_POLICY = "service"
"""The policy that the guardrails service has been given; a profile names it like one of the file's."""

DEFAULT = "default"
"""Name of the profile that holds where no other does."""

_WORD = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
# Members of `context.overrides` that have a key of their own here.
_OWN_KEYS = {"index": "index", "model": "model", "prompt_template": "system_prompt", "detectors": "detectors"}


def _index(name: str) -> str:
    return index_name(name) if name else name


def _host(text: str) -> str:
    if not _HOST.fullmatch(text.lower()):
        raise ValueError("a host is a name or an address, with or without a port: chat.example.com")
    return text.lower()


def _origin(text: str) -> str:
    scheme, slashes, host = text.lower().partition("://")
    if not slashes or scheme not in ("http", "https") or not _HOST.fullmatch(host):
        raise ValueError("an origin is a scheme and a host, without a path: https://chat.example.com")
    return text.lower()


def _origin_or_any(text: str) -> str:
    return text if text == ANY_ORIGIN else _origin(text)


def _overrides(members: dict[str, Any]) -> dict[str, Any]:
    for name in members.keys() & _OWN_KEYS.keys():
        raise ValueError(f"{name} does not stand here: it is the profile's {_OWN_KEYS[name]}")
    return members


_Index = Annotated[str, AfterValidator(_index)]
_Name = Annotated[str, Field(min_length=1)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class AllowEntry(_Model):
    """What requests may choose, as the file says it."""

    indexes: Literal["any"] | list[_Index] = []
    models: Literal["any"] | list[_Name] = []
    detectors: Literal["any", "none"] | list[_Name] = "any"
    prompt_template: bool = False

    @property
    def own_detectors(self) -> frozenset[str] | None:
        """The detectors, as of `Frontend`."""
        if self.detectors == "any":
            return None
        return frozenset() if self.detectors == "none" else frozenset(self.detectors)


class ProfileEntry(_Model):
    """A profile, as the file says it."""

    name: Annotated[str, Field(pattern=f"^{_WORD}$")]
    mount: Annotated[str, Field(pattern=f"^{_WORD}$")] = ""
    hosts: list[Annotated[str, AfterValidator(_host)]] = []
    origins: list[Annotated[str, AfterValidator(_origin)]] = []
    cors: list[Annotated[str, AfterValidator(_origin_or_any)]] = []
    dialect: str = ""
    client: Literal["", "azure-js-component"] = ""
    index: _Index | None = None
    model: str = ""
    system_prompt: str | None = None
    overrides: Annotated[dict[str, Any], AfterValidator(_overrides)] = {}
    policy: str = ""
    detectors: DetectorLists = DetectorLists()
    blocked_message: _Name | None = None
    allow: AllowEntry = AllowEntry()
    enforce_access: bool = False
    keys: list[_Name] = []
    retrieval: RetrievalEntry = RetrievalEntry()
    guardrails_wire: Literal["adr", "orchestrator"] = "adr"
    audit: Literal["off", "on", "required"] = "on"
    audit_text: bool = False
    priority: Literal["interactive", "batch"] = "interactive"

    def frontend(self, base: Frontend, policies: Mapping[str, Policy]) -> Frontend:
        """It, as requests find it; ``base`` says what it leaves open, ``policies`` has the one that it names."""
        policy = policies.get(self.policy, Policy())
        message = self.blocked_message or policy.blocked_message
        return Frontend(
            name=self.name,
            mount=self.mount,
            hosts=frozenset(self.hosts),
            origins=frozenset(self.origins),
            dialect=self.dialect,
            default_index=base.default_index if self.index is None else self.index,
            model=self.model,
            system_prompt=self.system_prompt,
            overrides=self.overrides,
            detectors=policy.detectors + self.detectors.detectors(),
            blocked_message=message or base.blocked_message,
            answers_blocked=bool(message),
            service_policy=self.policy == SERVICE_POLICY,
            indexes=None if self.allow.indexes == "any" else frozenset(self.allow.indexes),
            models=None if self.allow.models == "any" else frozenset(self.allow.models),
            own_detectors=self.allow.own_detectors,
            prompt_template=self.allow.prompt_template,
            enforce_access=self.enforce_access,
            cors=frozenset(self.cors),
            client=self.client,
            keys=frozenset(self.keys),
            indexes_beside=tuple(self.retrieval.indexes),
            tuning=self.retrieval.tuning(),
            rerank=self.retrieval.rerank,
            always_searches=bool(self.index) and self.name != DEFAULT,
            searches_with_tools=self.retrieval.with_tools,
            max_messages=base.max_messages,
            max_answer_tokens=base.max_answer_tokens,
            guardrails_wire=GuardrailsWire(self.guardrails_wire),
            audit=Audit(self.audit),
            audit_text=self.audit_text,
            batch=self.priority == "batch",
        )


class _File(_Model):
    policies: dict[Annotated[str, Field(pattern=f"^{_WORD}$")], PolicyEntry] = {}
    frontends: list[ProfileEntry] = []


@dataclass(frozen=True, slots=True)
class Served:
    """What the gateway has, and profiles must keep to.

    Attributes:
        segments: First segments of its own paths, which no mount may hide.
        dialects: Those that a profile may name.
        check_overrides: Raises `InvalidRequest` where a setting is none; its ``field`` ends with the name.
    """

    segments: frozenset[str] = frozenset()
    dialects: frozenset[str] | None = None
    check_overrides: Callable[[Mapping[str, Any]], None] = lambda _: None


def parse(raw: bytes, name: str, base: Frontend, served: Served) -> tuple[Frontend, ...]:
    """The profiles of a file, less what the deployment's policy adds to each.

    Args:
        raw: The file's content.
        name: What messages call it.
        base: Says what profiles leave open.
        served: What they must keep to.

    Raises:
        BadFile: The file is wrong; the message has the line and the key.
    """
    document = Document(raw, name)
    file = document.validated(_File)
    if SERVICE_POLICY in file.policies:
        raise document.wrong(("policies", SERVICE_POLICY), "the guardrails service's own policy has this name")
    known = {*file.policies, SERVICE_POLICY}
    for key, problem in _problems(file.frontends, served, known):
        raise document.wrong(key, problem)
    policies = {name: entry.policy() for name, entry in file.policies.items()}
    return tuple(profile.frontend(base, policies) for profile in file.frontends)


def _problems(profiles: list[ProfileEntry], served: Served, policies: set[str]) -> Iterable[tuple[Key, str]]:
    seen: dict[tuple[str, str], str] = {}
    for at, profile in enumerate(profiles):
        key = ("frontends", at)
        if profile.mount in served.segments:
            yield (*key, "mount"), f"the gateway's own paths begin with '{profile.mount}'"
        if served.dialects is not None and profile.dialect and profile.dialect not in served.dialects:
            yield (*key, "dialect"), f"there is no such dialect; they are {', '.join(sorted(served.dialects))}"
        if profile.policy and profile.policy not in policies:
            yield (*key, "policy"), f"there is no such policy; they are {', '.join(sorted(policies))}"
        try:
            served.check_overrides(profile.overrides)
        except InvalidRequest as error:
            name = (error.field or "").rpartition(".")[2]
            yield (*key, "overrides", name), error.message
        if profile.name != DEFAULT and not (profile.mount or profile.hosts or profile.origins):
            yield key, f"nothing leads to '{profile.name}': it needs a mount, hosts or origins"
        taken: list[tuple[str, Key, str]] = [("name", (*key, "name"), profile.name)]
        taken += [("mount", (*key, "mount"), profile.mount)] if profile.mount else []
        taken += [("host", (*key, "hosts", n), host) for n, host in enumerate(profile.hosts)]
        taken += [("origin", (*key, "origins", n), origin) for n, origin in enumerate(profile.origins)]
        for kind, place, value in taken:
            if (kind, value) in seen:
                yield place, f"the {kind} '{value}' is taken by the profile '{seen[kind, value]}'"
            seen[kind, value] = profile.name


class FrontendsFile:
    """The profiles' file while the gateway runs; a bad one keeps the profiles that were there.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: Reloadable[tuple[Frontend, ...]] | None = None

    def load(self, base: Frontend, served: Served) -> Callable[[], tuple[Frontend, ...]]:
        """Reads the file for the first time.

        Args:
            base: Says what profiles leave open.
            served: What they must keep to.

        Returns:
            Gives the newest good profiles.

        Raises:
            InvalidRequest: The file cannot be read, or is wrong.
        """
        with of_setting("frontends_file"):
            file = self._file = Reloadable(self._path, lambda raw: parse(raw, str(self._path), base, served))
        return lambda: file.current

    async def __aenter__(self) -> Self:
        """Watches the file, once it is loaded."""
        assert self._file is not None
        await self._file.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            await self._file.__aexit__(kind, error, traceback)


class Profiles:
    """All profiles as they are now: the deployment's own, those of the file, and the policy in front of each.

    Args:
        default: Holds where no other does, unless the file has one of this name.
        policy: The detectors that every request goes through.
        others: The file's profiles.
        of_service: The guardrails service's policy, for profiles that name it; None: it is not known.
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
        """The snapshot; the same one as long as nothing changes."""
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
