import json
from collections.abc import Callable
from typing import Any


def test_the_data_of_a_user_are_deleted(gateway: Any, cli: Callable[..., Any]) -> None:
    """The command sends the name and the issuer of the user. Without a terminal, it needs --yes."""
    arguments = ("users", "delete", "ann/b@example.com", "--url", gateway.url)
    refused = cli(*arguments)
    assert (refused.exit_code, "use --yes" in refused.stderr) == (2, True)
    assert gateway.requests == []
    assert cli(*arguments, "--yes").stdout == "deleted: 2 responses, 1 chats, 0 sessions\n"
    machine = cli(*arguments, "--yes", "--json", "--issuer", "https://id")
    assert json.loads(machine.stdout)["deleted"] == {"responses": 2, "chats": 1, "sessions": 0}
    assert gateway.requests == [
        {"user": "ann/b@example.com", "issuer": ""},
        {"user": "ann/b@example.com", "issuer": "https://id"},
    ]
