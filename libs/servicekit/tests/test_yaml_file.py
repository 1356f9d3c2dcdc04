"""Configuration files in YAML."""

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from servicekit.errors import InvalidRequest
from servicekit.yaml_file import BadFile, Document, setting_errors


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["a"]
    size: int = Field(1, ge=1)
    version: str = ""


class Other(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["b"]
    name: str

    @field_validator("name")
    @classmethod
    def _known(cls, value: str, info: ValidationInfo) -> str:
        assert info.context is not None
        if value not in info.context["names"]:
            raise ValueError("nobody has this name")
        return value


class Schema(BaseModel):
    model_config = ConfigDict(extra="forbid")
    parts: list[Annotated[Part | Other, Field(discriminator="kind")]] = []
    flags: dict[str, bool] = {}


def read(text: str) -> Schema:
    return Document(text.encode(), "f.yaml").validated(Schema, {"names": ("x", "no", "on")})


def test_a_valid_file_becomes_a_model() -> None:
    """Dates, `no` and `on` are words, numbers are numbers, and anchors work. An empty file is valid."""
    schema = read(
        "parts:\n- &one {kind: a, version: 2024-10-21, size: 3}\n- {kind: b, name: no}\n"
        "- {kind: b, name: on}\n- {<<: *one, size: 4}\nflags: {x: true}\n"
    )
    assert schema.model_dump() == {
        "parts": [
            {"kind": "a", "size": 3, "version": "2024-10-21"},
            {"kind": "b", "name": "no"},
            {"kind": "b", "name": "on"},
            {"kind": "a", "size": 4, "version": "2024-10-21"},
        ],
        "flags": {"x": True},
    }
    assert read("") == read("# nothing\n") == Schema()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("parts:\n- kind: a\n  sise: 3\n", "f.yaml, line 3, parts[0].sise: there is no such key"),
        ("parts:\n- kind: a\n  size: 0\n", "f.yaml, line 3, parts[0].size: Input should be greater than"),
        ("parts:\n- kind: a\n- kind: b\n", "f.yaml, line 3, parts[1].name: this is missing"),
        ("parts:\n- {}\n", "f.yaml, line 2, parts[0]: this is missing"),
        ("parts:\n- kind: b\n\n  name: y\n", "f.yaml, line 4, parts[0].name: nobody has this name"),
        ("flags: {x: 1, x: 2}", "f.yaml, line 1, flags.x: duplicate key"),
        ("a:\n  b: [\n", "f.yaml, line 3: this is not valid YAML"),
        ("- a\n", "f.yaml, line 1: this must be an object with keys and values"),
        ("a: 1\n---\nb: 2\n", "f.yaml, line 2: this is not valid YAML: a second document begins here"),
        ("flags:\n  x: {{ value }}\n", "f.yaml, line 2: this is not valid YAML: a key is a list or an object"),
        ("parts:\n- kind: !!bool abc\n", "f.yaml, line 2: this is not valid YAML: this value does not fit its tag"),
        ("a: 1\nb: !!int ''\n", "f.yaml, line 2: this is not valid YAML: this value does not fit its tag"),
        ("b: !!timestamp abc\n", "f.yaml, line 1: this is not valid YAML: this value does not fit its tag"),
        ("a: " + "9" * 5000, "f.yaml, line 1: this is not valid YAML: this value does not fit its tag"),
        ('a:\n- "\\UFFFFFFFF"\n', "f.yaml, line 2: this is not valid YAML: unknown character escape"),
        ("\x00", "f.yaml: this is not valid YAML"),
        ("parts: !!python/object:os.system {}", "f.yaml, line 1: this is not valid YAML"),
        ("[" * 5000, "f.yaml"),
    ],
)
def test_errors_name_file_line_and_key(text: str, message: str) -> None:
    """The error has file, line and key, so that the operator finds the place."""
    with pytest.raises(BadFile) as caught:
        read(text)
    assert message in str(caught.value)


def test_the_encoding_is_named() -> None:
    """The line of the first byte that is not UTF-8 is in the error."""
    with pytest.raises(BadFile, match=r"^f\.yaml, line 2: this is not valid YAML: it is not UTF-8"):
        Document("a: 1\nname: Zürich\n".encode("latin-1"), "f.yaml")


def test_several_problems_are_reported_together() -> None:
    """An error lists up to ten problems and the number of further ones."""
    with pytest.raises(BadFile) as caught:
        read("".join(f"wrong{number}: 1\n" for number in range(13)))
    assert str(caught.value).count("there is no such key") == 10
    assert str(caught.value).endswith("and 3 more")


@pytest.mark.parametrize(
    "text",
    ["parts:\n- {kind: a, size: s3cret}", "a: s3cret: b", "s3cret\t[: }", "- 's3cret", "a: *s3cret", "a: !s3cret"],
)
def test_errors_contain_no_values(text: str) -> None:
    """Neither the error nor its causes contain a value of the file, because it may be secret."""
    with pytest.raises(BadFile) as caught:
        read(text)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_further_problems_can_be_placed() -> None:
    """A check outside of the model names its key in the same way."""
    document = Document(b"a:\n- b: 1\n- b: 2\n", "f.yaml")
    assert str(document.wrong(("a", 1, "b"), "no")) == "f.yaml, line 3, a[1].b: no"


@pytest.mark.parametrize(
    "error", [BadFile("f.yaml, line 1: this is not valid YAML"), FileNotFoundError("there is no f.yaml")]
)
def test_errors_of_a_file_name_the_setting(error: Exception) -> None:
    """The error names the variable and the problem. The cause, which may contain values, is not passed on."""
    with pytest.raises(InvalidRequest) as caught, setting_errors("prices_file"):
        raise error
    assert caught.value.message == f"CAUSEWAY_PRICES_FILE: {error}"
    assert caught.value.field == "prices_file"
    assert caught.value.__suppress_context__


def test_a_defect_is_not_a_files_fault() -> None:
    """Other errors are raised unchanged."""
    with pytest.raises(LookupError), setting_errors("prices_file"):
        raise LookupError
