"""Loads, validates and reloads the YAML file of the front end profiles."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field
from servicekit.errors import InvalidRequest
from servicekit.reloadable import Reloadable
from servicekit.yaml_file import Document, Key, setting_errors

from gateway.domain import Detectors, Policy
from gateway.frontends.assistants import AssistantEntry, assistants_by_name
from gateway.frontends.detector_policy import PolicyEntry
from gateway.frontends.profile_entry import DEFAULT, SERVICE_POLICY, WORD, ProfileEntry
from gateway.frontends.profiles import Frontend
from gateway.frontends.snapshot import Frontends


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    policies: dict[Annotated[str, Field(pattern=f"^{WORD}$")], PolicyEntry] = {}
    assistants: list[AssistantEntry] = []
    frontends: list[ProfileEntry] = []


@dataclass(frozen=True, slots=True)
class GatewayProperties:
    """Properties of the gateway for the validation of profiles.

    Attributes:
        segments: The first segments of the gateway's own paths, which a mount must not use.
        dialects: The dialects that a profile may name.
        check_overrides: Validates default values of ``context.overrides``. It raises `InvalidRequest` with a
            ``field`` that ends with the name of the invalid setting.
        models: Returns the names of the models.
    """

    segments: frozenset[str] = frozenset()
    dialects: frozenset[str] | None = None
    check_overrides: Callable[[Mapping[str, Any]], None] = lambda _: None
    models: Callable[[], frozenset[str]] = frozenset


def parse(raw: bytes, name: str, base: Frontend, gateway: GatewayProperties) -> tuple[Frontend, ...]:
    """Parse the profiles of a file. They do not contain the detectors of the deployment's policy.

    Args:
        raw: The file's content.
        name: The name of the file in messages.
        base: The defaults of profiles.
        gateway: The gateway's properties.

    Raises:
        BadFile: The file is invalid; the message has the line and the key.
    """
    document = Document(raw, name)
    file = document.validated(_File)
    if SERVICE_POLICY in file.policies:
        raise document.wrong(
            ("policies", SERVICE_POLICY), "this name is reserved for the policy of the guardrails service"
        )
    policy_names = {*file.policies, SERVICE_POLICY}
    problems = (
        *_assistant_problems(file, gateway),
        *_profile_problems(file.frontends, gateway, policy_names, base),
    )
    for key, problem in problems:
        raise document.wrong(key, problem)
    policies = {name: entry.policy() for name, entry in file.policies.items()}
    base = replace(base, assistants=assistants_by_name(file.assistants))
    profiles = [profile.frontend(base, policies) for profile in file.frontends]
    if file.assistants and all(profile.name != DEFAULT for profile in profiles):
        profiles.append(base)  # the default profile has the file's assistants, too
    return tuple(profiles)


def _assistant_problems(file: _File, gateway: GatewayProperties) -> Iterable[tuple[Key, str]]:
    models = gateway.models()
    shared = {assistant.name for assistant in file.assistants}
    groups: list[tuple[Key, list[AssistantEntry], set[str]]] = [(("assistants",), file.assistants, set())]
    groups += [
        (("frontends", at, "assistants"), profile.assistants, shared) for at, profile in enumerate(file.frontends)
    ]
    for group_key, entries, reserved in groups:
        names = set(reserved)
        for at, entry in enumerate(entries):
            key = (*group_key, at)
            if entry.name in models:
                yield (*key, "name"), f"a model has the name '{entry.name}'"
            if entry.name in names:
                yield (*key, "name"), f"another assistant has the name '{entry.name}'"
            names.add(entry.name)
            yield from _override_problems(entry.overrides, key, gateway)


def _override_problems(
    overrides: dict[str, Any], key: Key, gateway: GatewayProperties
) -> Iterable[tuple[Key, str]]:
    try:
        gateway.check_overrides(overrides)
    except InvalidRequest as error:
        name = (error.field or "").rpartition(".")[2]
        yield (*key, "overrides", name), error.message


def _profile_problems(
    profiles: list[ProfileEntry], gateway: GatewayProperties, policies: set[str], base: Frontend
) -> Iterable[tuple[Key, str]]:
    owners: dict[tuple[str, str], str] = {}
    for at, profile in enumerate(profiles):
        key = ("frontends", at)
        if profile.mount and profile.mount in gateway.segments:
            yield (*key, "mount"), f"the gateway's own paths begin with '{profile.mount}'"
        if gateway.dialects is not None and profile.dialect and profile.dialect not in gateway.dialects:
            yield (*key, "dialect"), f"unknown dialect; the dialects are {', '.join(sorted(gateway.dialects))}"
        if profile.policy and profile.policy not in policies:
            yield (*key, "policy"), f"unknown policy; the policies are {', '.join(sorted(policies))}"
        yield from _override_problems(profile.overrides, key, gateway)
        for number, index in enumerate(profile.mcp.indexes):
            if not profile.can_read(index, base.default_index):
                yield (
                    (*key, "mcp", "indexes", number),
                    "requests of the profile may not read this index; add it to allow.indexes",
                )
        if profile.name != DEFAULT and not (profile.mount or profile.hosts or profile.origins):
            yield key, f"no request can reach '{profile.name}': it needs a mount, hosts or origins"
        names: list[tuple[str, Key, str]] = [("name", (*key, "name"), profile.name)]
        names += [("mount", (*key, "mount"), profile.mount)] if profile.mount else []
        names += [("host", (*key, "hosts", number), host) for number, host in enumerate(profile.hosts)]
        names += [("origin", (*key, "origins", number), origin) for number, origin in enumerate(profile.origins)]
        for kind, name_key, value in names:
            if (kind, value) in owners:
                yield name_key, f"the {kind} '{value}' already belongs to the profile '{owners[kind, value]}'"
            owners[kind, value] = profile.name


class FrontendsFile:
    """The profiles' file at runtime. If a changed file is invalid, the previous profiles remain.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: Reloadable[tuple[Frontend, ...]] | None = None

    def load(self, base: Frontend, gateway: GatewayProperties) -> Callable[[], tuple[Frontend, ...]]:
        """Load the file for the first time.

        Args:
            base: The defaults of profiles.
            gateway: The gateway's properties.

        Returns:
            A function that returns the newest valid profiles.

        Raises:
            InvalidRequest: The file cannot be read or is invalid.
        """
        with setting_errors("frontends_file"):
            file = self._file = Reloadable(self._path, lambda raw: parse(raw, str(self._path), base, gateway))
        return lambda: file.current

    async def __aenter__(self) -> Self:
        """Start to watch the file, after `load`."""
        assert self._file is not None
        await self._file.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._file is not None:
            await self._file.__aexit__(*exc)


class Profiles:
    """Builds the snapshot of all profiles. Each profile includes the detectors of the deployment's policy.

    Args:
        default: The default profile. A profile of this name in the file replaces it.
        policy: Returns the detectors that judge every request.
        file_profiles: Returns the file's profiles.
        service_policy: Returns the policy of the guardrails service; None: not available.
    """

    def __init__(
        self,
        default: Frontend,
        policy: Callable[[], Detectors],
        file_profiles: Callable[[], tuple[Frontend, ...]] = tuple,
        service_policy: Callable[[], Policy | None] = lambda: None,
    ) -> None:
        self._default = default
        self._policy = policy
        self._file_profiles = file_profiles
        self._service_policy = service_policy
        self._built_from: tuple[Detectors, tuple[Frontend, ...], Policy | None] | None = None
        self._frontends = Frontends(default)

    def __call__(self) -> Frontends:
        """Return the snapshot. Return the same object until the file or a policy changes."""
        policy, profiles = self._policy(), self._file_profiles()
        service_policy = self._service_policy() if any(profile.service_policy for profile in profiles) else None
        sources = policy, profiles, service_policy
        if sources != self._built_from:
            own_default, *others = (
                replace(profile, detectors=policy + profile.detectors)
                for profile in (self._default, *(_with_policy(profile, service_policy) for profile in profiles))
            )
            default = next((profile for profile in others if profile.name == DEFAULT), own_default)
            self._frontends = Frontends(default, [profile for profile in others if profile is not default])
            self._built_from = sources
        return self._frontends


def _with_policy(profile: Frontend, service_policy: Policy | None) -> Frontend:
    if not profile.service_policy:
        return profile
    if service_policy is None:
        reason = (
            "The policy of this front end is not available. The guardrails service has none, or does not respond."
        )
        return replace(profile, policy_error=reason)
    return replace(
        profile,
        detectors=service_policy.detectors + profile.detectors,
        blocked_message=profile.blocked_message if profile.answers_blocked else service_policy.blocked_message,
    )
