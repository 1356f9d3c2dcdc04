"""Writes what NATS lets each service do, in clusters with TLS, from servicekit.permissions; or checks the file.

Usage: python tools/broker_permissions.py [--check]
"""

import argparse
import sys

from manifests import K8S
from servicekit.permissions import authorization

FILE = K8S / "components" / "tls" / "authorization.conf"


def main() -> int:
    """Runs the command line; 1 where the check finds the file out of step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where the file is out of step")
    text = f"# Written by `make settings` from servicekit/permissions.py.\n{authorization()}"
    if not parser.parse_args().check:
        FILE.write_text(text)
    elif FILE.read_text() != text:
        print(f"{FILE} is out of step; run `make settings`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
