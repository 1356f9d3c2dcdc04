"""Types of configuration values: references to secrets, files and addresses.

`yaml_file.Document.validated` resolves them. Its context must contain ``environ``, the variables that a file may
use, and ``folder``, the file's directory. Paths are relative to this directory.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, StringConstraints, ValidationInfo

from servicekit.secret_file import SecretFile, check_sendable

_SOURCES = "{env: NAME} or {file: PATH}"

URL_PATTERN = r"^https?://[^/?#@\s]+([/?]\S*)?$"
"""A URL without credentials, because logs contain URLs."""

TARGET_PATTERN = r"^[^/@\s]+:[0-9]{1,5}$"
"""``host:port``."""


def _secret(value: object, info: ValidationInfo) -> object:
    """Return the content of the named variable or file; a secret value is unchanged."""
    if isinstance(value, SecretStr):
        return value
    context: Mapping[str, Any] = info.context or {}
    match value:
        case {"env": str(name), **rest} if not rest:
            found = context["environ"].get(name, "")
            if not found:
                raise ValueError(f"the variable {name} is not set, or empty")
            return SecretStr(found)
        case {"file": str(path), **rest} if not rest:
            try:
                return SecretFile(context["folder"] / path, check_sendable)
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(f"the file {path} cannot be read: {type(error).__name__}") from None
            except ValueError as error:
                raise ValueError(f"the file {path}: {error}") from None
        case _:
            raise ValueError(f"this must be {_SOURCES}: a configuration file must not contain the secret itself")


def _text(value: object, info: ValidationInfo) -> object:
    return SecretStr(value) if isinstance(value, str) else _secret(value, info)


def _sendable(value: SecretStr) -> SecretStr:
    check_sendable(value.get_secret_value())
    return value


def _file(value: Path, info: ValidationInfo) -> Path:
    path: Path = (info.context or {}).get("folder", Path()) / value
    if not path.is_file():
        raise ValueError("there is no such file")
    return path


Secret = Annotated[SecretStr, BeforeValidator(_secret), AfterValidator(_sendable)]
"""``{env: NAME}`` or ``{file: PATH}``, resolved to the content. A file is read again when it changes."""

Text = Annotated[SecretStr, BeforeValidator(_text), AfterValidator(_sendable)]
"""A text, or a reference to a secret."""

ExistingFile = Annotated[Path, AfterValidator(_file)]
"""The path of an existing file."""

Url = Annotated[str, StringConstraints(pattern=URL_PATTERN)]
Target = Annotated[str, StringConstraints(pattern=TARGET_PATTERN)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^\S(.*\S)?$")]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
