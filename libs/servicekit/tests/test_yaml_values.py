"""Values of configuration files: references to secrets, paths, and addresses without credentials."""

from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr
from servicekit.secret_file import SecretFile
from servicekit.yaml_file import BadFile, Document
from servicekit.yaml_values import ExistingFile, Name, Seconds, Secret, Target, Text, Url


class Schema(BaseModel):
    key: Secret | None = None
    text: Text | None = None
    file: ExistingFile | None = None
    url: Url | None = None
    target: Target | None = None
    name: Name | None = None
    wait: Seconds | None = None


def read(folder: Path, text: str) -> Schema:
    (folder / "here.txt").write_text("s3cret-file\n")
    (folder / "empty.txt").write_text("\n")
    (folder / "odd.txt").write_text("s3cret\nodd")
    context = {"environ": {"KEY": "s3cret-env", "EMPTY": "", "ODD": "s3cret\nodd"}, "folder": folder}
    return Document(text.encode(), "f.yaml").validated(Schema, context)


def test_secrets_are_read_from_variables_and_files(tmp_path: Path) -> None:
    """A secret comes from an environment variable or from a file. The path is relative to the configuration file,
    and the line end is not part of the secret. The `repr` of the values contains no secret.
    """
    from_env = read(tmp_path, "key: {env: KEY}\ntext: plain")
    from_file = read(tmp_path, "key: {file: here.txt}\ntext: {file: here.txt}")
    assert (from_env.key, from_env.text) == (SecretStr("s3cret-env"), SecretStr("plain"))
    assert isinstance(from_file.key, SecretFile)
    assert from_file.key == from_file.text
    assert from_file.key.get_secret_value() == "s3cret-file"
    assert "s3cret" not in repr((from_env, from_file))
    assert Schema.model_validate(from_env.model_dump()) == from_env


def test_paths_are_relative_and_other_values_unchanged(tmp_path: Path) -> None:
    """Paths are relative to the file. Other values are unchanged."""
    values = read(tmp_path, 'file: here.txt\nurl: http://h:1/v1?a=b\ntarget: "h:1"\nname: a b\nwait: 0.5')
    assert values.file == tmp_path / "here.txt"
    assert (values.url, values.target, values.name, values.wait) == ("http://h:1/v1?a=b", "h:1", "a b", 0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("key: s3cret-plain", r"\{env: NAME\} or \{file: PATH\}"),
        ("key: {env: KEY, file: here.txt}", r"\{env: NAME\} or \{file: PATH\}"),
        ("key: {env: GONE}", "the variable GONE is not set"),
        ("key: {env: EMPTY}", "the variable EMPTY is not set, or empty"),
        ("key: {env: ODD}", "a header must not contain"),
        ("key: {file: empty.txt}", "empty.txt: it is empty"),
        ("key: {file: odd.txt}", "odd.txt: this contains characters that a header must not contain"),
        ("key: {file: gone.txt}", "gone.txt cannot be read: FileNotFoundError"),
        ("text: 3", r"\{env: NAME\}"),
        ("file: gone.txt", "there is no such file"),
        ("url: http://user:s3cret@h/v1", "url"),
        ("url: ftp://h", "url"),
        ("target: http://h:1", "target"),
        ("target: h", "target"),
        ("name: ' a'", "name"),
        ("wait: 0", "wait"),
        ("wait: .nan", "wait"),
    ],
)
def test_wrong_values_are_refused(tmp_path: Path, text: str, message: str) -> None:
    """The error names the problem and contains no secret."""
    with pytest.raises(BadFile, match=message) as caught:
        read(tmp_path, text)
    assert "s3cret" not in str(caught.value)
