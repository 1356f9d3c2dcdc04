from pathlib import Path
from typing import Any

import pytest
import yaml
from causeway_testing.servers import eventually
from gateway.dialects.rag_chat import overrides
from gateway.domain import Action, Detector, Detectors, Policy
from gateway.frontends.profile_entry import AllowEntry, ProfileEntry
from gateway.frontends.profiles import Audit, Frontend, GuardrailsWire
from gateway.frontends.profiles_file import FrontendsFile, GatewayProperties, Profiles, parse
from gateway.frontends.response_policy import ResponsePolicy, UnknownTools
from gateway.frontends.snapshot import Frontends
from gateway.routes.table import route_table
from servicekit.errors import InvalidRequest, Unavailable
from servicekit.yaml_file import BadFile

BASE = Frontend(default_index="docs", blocked_message="No.")
SERVED = GatewayProperties(
    frozenset({"chat", "content", "2024-01"}), frozenset({"2024-01", "2024-04"}), overrides.check
)
FULL = b"""
frontends:
  - name: help
    mount: help
    hosts: [Help.Example.com, "localhost:8080"]
    origins: [https://help.example.com]
    cors: ["*"]
    dialect: "2024-01"
    client: azure-js-component
    index: handbook
    model: small
    system_prompt: Be kind.
    overrides: {top: 5, temperature: 0.2}
    detectors:
      output: [{id: pii, action: redact, params: {types: [email]}}]
    blocked_message: Ask us.
    allow: {indexes: [minutes], models: any, detectors: [pii], prompt_template: true, chat_template: true}
    enforce_access: true
    keys: [page]
    guardrails_wire: orchestrator
    audit: required
    audit_text: true
    priority: batch
    responses: requested
    on_revoked: keep
    searches: 2
    unknown_tools: refuse
    citations: links
    memory: session
  - {name: bare, mount: bare}
"""


def read(raw: bytes) -> tuple[Frontend, ...]:
    return parse(raw, "f.yaml", BASE, SERVED)


def test_every_key_of_a_profile_is_read() -> None:
    """Every key of a profile is read, except the keys that have tests of their own."""
    written = yaml.safe_load(FULL)["frontends"][0]
    assert written.keys() == ProfileEntry.model_fields.keys() - {"policy", "retrieval", "assistants", "mcp"}
    assert written["allow"].keys() == AllowEntry.model_fields.keys()
    assert read(FULL)[0] == Frontend(
        name="help",
        mount="help",
        hosts=frozenset({"help.example.com", "localhost:8080"}),
        origins=frozenset({"https://help.example.com"}),
        cors=frozenset({"*"}),
        dialect="2024-01",
        client="azure-js-component",
        default_index="handbook",
        always_searches=True,
        model="small",
        system_prompt="Be kind.",
        overrides={"top": 5, "temperature": 0.2},
        detectors=Detectors(output=(Detector("pii", Action.REDACT, params_json=b'{"types":["email"]}'),)),
        blocked_message="Ask us.",
        answers_blocked=True,
        indexes=frozenset({"minutes"}),
        models=None,
        allowed_detectors=frozenset({"pii"}),
        allows_prompt_template=True,
        allows_chat_template=True,
        enforce_access=True,
        keys=frozenset({"page"}),
        guardrails_wire=GuardrailsWire.ORCHESTRATOR,
        audit=Audit.REQUIRED,
        audit_text=True,
        is_batch=True,
        responses=ResponsePolicy.REQUESTED,
        hides_revoked=False,
        max_searches=2,
        unknown_tools=UnknownTools.REFUSE,
        links_citations=True,
        memory=True,
    )


def test_the_defaults_of_a_profile() -> None:
    """A profile without optional keys has the deployment's index and message.

    Its requests may add detectors, but cannot choose an index, a model or a prompt.
    """
    assert read(FULL)[1] == Frontend(
        name="bare",
        mount="bare",
        default_index="docs",
        blocked_message="No.",
        indexes=frozenset(),
        models=frozenset(),
        allows_prompt_template=False,
    )


@pytest.mark.parametrize(
    ("value", "allowed"), [("any", None), ("none", frozenset()), ("[]", frozenset()), ("[pii]", frozenset({"pii"}))]
)
def test_detectors_of_requests(value: str, allowed: frozenset[str] | None) -> None:
    """`allow.detectors` is `any`, `none` or a list."""
    text = f"frontends: [{{name: a, mount: a, allow: {{detectors: {value}}}}}]"
    assert read(text.encode())[0].allowed_detectors == allowed


def test_an_index_can_be_empty() -> None:
    """An empty index is kept. An empty file has no profiles."""
    assert read(b"frontends: [{name: a, mount: a, index: ''}]")[0].default_index == ""
    assert read(b"") == read(b"frontends: []") == ()


ONE = "frontends:\n- name: a\n  mount: a\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profiles: []", "line 1, profiles: there is no such key"),
        (ONE + "  modle: x\n", "line 4, frontends[0].modle: there is no such key"),
        (ONE + "  allow:\n    index: [b]\n", "line 5, frontends[0].allow.index: there is no such key"),
        (
            ONE + "  dialect: 2024-02\n",
            "line 4, frontends[0].dialect: unknown dialect; the dialects are 2024-01, 2024",
        ),
        (ONE + "  client: other\n", "line 4, frontends[0].client: "),
        (ONE + "  index: a/b\n", "line 4, frontends[0].index: "),
        (ONE + "  allow: {indexes: all}\n", "line 4, frontends[0].allow.indexes"),
        (ONE + "  hosts:\n  - a\n  - http://b\n", "line 6, frontends[0].hosts[1]: a host is"),
        (ONE + "  origins: [example.com]\n", "line 4, frontends[0].origins[0]: an origin is"),
        (ONE + "  origins: ['*']\n", "line 4, frontends[0].origins[0]: an origin is"),
        (ONE + "  cors: [https://a/b]\n", "line 4, frontends[0].cors[0]: an origin is"),
        (ONE + "  enforce_access: 'yes'\n", "line 4, frontends[0].enforce_access: "),
        (ONE + "  blocked_message: ''\n", "line 4, frontends[0].blocked_message: "),
        (ONE + "  overrides:\n    tpo: 3\n", "line 5, frontends[0].overrides.tpo: This setting does not exist"),
        (ONE + "  overrides:\n    seed: 1\n    top: 99\n", "line 6, frontends[0].overrides.top: "),
        (ONE + "  overrides: {model: b}\n", "line 4, frontends[0].overrides: model is not allowed here"),
        (ONE + "  detectors: {output: [{id: a}]}\n", "frontends[0].detectors.output[0].action: this is missing"),
        ("frontends:\n- name: a\n", "line 2, frontends[0]: no request can reach 'a'"),
        ("frontends:\n- mount: a\n", "line 2, frontends[0].name: this is missing"),
        ("frontends:\n- name: a b\n  mount: a\n", "line 2, frontends[0].name: "),
        ("frontends:\n- name: a\n  mount: a/b\n", "line 3, frontends[0].mount: "),
        ("frontends:\n- name: a\n  mount: content\n", "line 3, frontends[0].mount: the gateway's own paths"),
        ("frontends:\n- name: a\n  mount: 2024-01\n", "line 3, frontends[0].mount: the gateway's own paths"),
        (
            ONE + "- name: a\n  mount: b\n",
            "line 4, frontends[1].name: the name 'a' already belongs to the profile 'a'",
        ),
        (
            ONE + "- name: b\n  mount: a\n",
            "line 5, frontends[1].mount: the mount 'a' already belongs to the profile 'a'",
        ),
        (ONE + "  hosts: [X, x]\n", "line 4, frontends[0].hosts[1]: the host 'x' already belongs"),
        (
            ONE + "  origins: [https://x]\n- name: b\n  origins: [https://x]\n",
            "line 6, frontends[1].origins[0]: the origin 'https://x' already belongs to the profile 'a'",
        ),
        (ONE + "  mount: b\n", "line 4, frontends[0].mount: duplicate key"),
        ("frontends: {a: b}", "line 1, frontends: "),
        ("frontends: [", "line 1: this is not valid YAML"),
    ],
)
def test_an_invalid_file_is_refused_with_line_and_key(text: str, message: str) -> None:
    """The error has the file, the line and the key of a wrong key, a wrong value or a conflict."""
    with pytest.raises(BadFile) as caught:
        read(text.encode())
    assert str(caught.value).startswith("f.yaml, line ")
    assert message in str(caught.value)


@pytest.mark.parametrize("name", sorted(overrides.KNOWN - {"index", "model", "prompt_template", "detectors"}))
def test_the_default_of_each_setting_is_checked(name: str) -> None:
    """The key `overrides` accepts each setting of a request, and refuses a wrong value. Null means no default."""
    profile = f"frontends: [{{name: a, mount: a, overrides: {{{name}: %s}}}}]"
    assert read((profile % "null").encode())[0].overrides == {name: None}
    with pytest.raises(BadFile, match=rf"overrides\.{name}: (?!This setting does not exist)"):
        read((profile % "{}").encode())


def test_a_missing_or_invalid_file_ends_the_start(tmp_path: Path) -> None:
    """The error names the setting and the file, and the wrong key if the file exists."""
    path = tmp_path / "frontends.yaml"
    with pytest.raises(InvalidRequest, match=r"^CAUSEWAY_FRONTENDS_FILE: .*frontends\.yaml"):
        FrontendsFile(path).load(BASE, SERVED)
    path.write_text("frontends: [{name: a, mount: chat}]")
    with pytest.raises(InvalidRequest, match=r"^CAUSEWAY_FRONTENDS_FILE: .*, line 1, frontends\[0\]\.mount"):
        FrontendsFile(path).load(BASE, SERVED)


async def test_a_valid_change_is_loaded(tmp_path: Path, capsys: Any) -> None:
    """A changed file is loaded. If it is invalid, the previous profiles remain, and the log names the key."""
    path = tmp_path / "frontends.yaml"
    path.write_text("frontends: [{name: a, mount: a}]")
    file = FrontendsFile(path)
    current = file.load(BASE, SERVED)
    async with file:
        path.write_text("frontends: [{name: b, mount: b}]")
        await eventually(lambda: current()[0].name == "b", what="the reload")
        path.write_text("frontends: [{name: c, mount: chat}]")
        await eventually(lambda: "frontends[0].mount" in capsys.readouterr().out, what="the log line")
        assert [profile.name for profile in current()] == ["b"]


async def test_the_policy_precedes_each_profile() -> None:
    """The policy's detectors precede those of every profile, even after a change.

    Without a change, the same object is returned.
    """
    own, policy = Detector("own", Action.REPORT), Detector("policy", Action.BLOCK)
    now = [Detectors(input=(policy,))]
    others = (Frontend("a", mount="a", detectors=Detectors(input=(own,))),)
    profiles = Profiles(BASE, lambda: now[0], lambda: others)
    first = profiles()
    assert named(first, "a").detectors.input == (policy, own)
    assert first.default.detectors.input == (policy,)
    assert profiles() is first
    now[0] = Detectors()
    assert profiles().default.detectors == Detectors()


POLICIES = b"""
policies:
  strict:
    input: [{id: words, action: block}]
    output: [{id: pii, action: redact, on_error: allow}]
    blocked_message: Not here.
frontends:
  - {name: a, mount: a, policy: strict, detectors: {output: [{id: own, action: report}]}}
  - {name: b, mount: b, policy: strict, blocked_message: Ask us.}
  - {name: c, mount: c, policy: service}
  - {name: d, mount: d, policy: service, blocked_message: Ask us.}
"""


def test_a_profile_can_name_a_policy() -> None:
    """The policy's detectors precede the profile's. The policy's message is used if the profile has none."""
    first, second, *_ = read(POLICIES)
    assert first.detectors.input == (Detector("words", Action.BLOCK),)
    assert first.detectors.output == (Detector("pii", Action.REDACT, True), Detector("own", Action.REPORT))
    assert (first.blocked_message, first.answers_blocked) == ("Not here.", True)
    assert second.blocked_message == "Ask us."


def test_a_profile_can_name_the_policy_of_the_service() -> None:
    """Requests are refused until the service's policy is known.

    Then its detectors apply, and its message is used if the profile has none.
    """
    file, now = read(POLICIES), [None, Policy(Detectors(output=(Detector("pii", Action.BLOCK),)), "Blocked.")]
    profiles = Profiles(BASE, Detectors, lambda: file, lambda: now[0])
    for name in ("c", "d"):
        with pytest.raises(Unavailable, match="policy"):
            named(profiles(), name).detectors_for(Detectors())
    assert named(profiles(), "b").detectors_for(Detectors()).input
    now.reverse()
    guarded = named(profiles(), "c")
    assert guarded.detectors_for(Detectors()).output == (Detector("pii", Action.BLOCK),)
    # A blocked question is still refused, because the service's policy applies to answers.
    assert (guarded.blocked_message, guarded.answers_blocked) == ("Blocked.", False)
    assert named(profiles(), "d").blocked_message == "Ask us."
    assert profiles() is profiles()


def named(frontends: Frontends, mount: str) -> Frontend:
    found, path = frontends.resolve(f"/{mount}/chat")
    assert path == "/chat"
    return found


def test_a_profile_called_default_replaces_the_deployments() -> None:
    """A profile `default` replaces the deployment's settings. Without it, they apply."""
    assert Profiles(BASE, Detectors)().default == BASE
    named = read(b"frontends: [{name: default, index: other}, {name: a, mount: a}]")
    frontends: Frontends = Profiles(BASE, Detectors, lambda: named)()
    assert (frontends.default.name, frontends.default.default_index) == ("default", "other")
    assert frontends.resolve("/a/chat") == (named[1], "/chat")


def test_profiles_without_a_mount_do_not_conflict_with_the_console() -> None:
    """The console's path `/` has an empty first segment, which is not the mount of a profile without one."""
    served = GatewayProperties(segments=frozenset({"", "chat"}))
    profiles = parse(b"frontends: [{name: default}, {name: help, hosts: [a.example]}]", "f.yaml", BASE, served)
    assert [profile.mount for profile in profiles] == ["", ""]


def test_the_documented_examples_are_valid() -> None:
    """The documentation's examples can be loaded, and its table has every key."""
    root = Path(__file__).resolve().parents[4]
    segments = frozenset(route.first_segment for route in route_table((), console=True))
    served = GatewayProperties(segments, frozenset({"2024-01", "2026-04-10"}), overrides.check)
    example = (root / "examples" / "frontends.yaml").read_bytes()
    assert [profile.name for profile in parse(example, "f", BASE, served)] == ["help", "staff", "default"]
    page = (root / "docs" / "frontends.md").read_text()
    [shown] = parse(page.split("```yaml\n")[1].split("```")[0].encode(), "f", BASE, served)
    assert (shown.name, shown.indexes) == ("help", frozenset({"minutes"}))
    for field in ProfileEntry.model_fields.keys() - {"allow"} | {f"allow.{key}" for key in AllowEntry.model_fields}:
        assert f"\n| `{field}` |" in page
