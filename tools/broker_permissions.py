"""Write the file with the NATS permissions of each service in a cluster with TLS, or check the file.

The permissions come from servicekit.permissions.

Usage: python tools/broker_permissions.py [--check]
"""

import argparse
import sys

from manifests import K8S
from servicekit.permissions import authorization

FILE = K8S / "components" / "tls" / "authorization.conf"


def main() -> int:
    """Run the command line; return 1 if the check finds that the file is outdated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the file is outdated")
    text = f"# Written by `make settings` from servicekit/permissions.py.\n{authorization()}"
    if not parser.parse_args().check:
        FILE.write_text(text)
    elif FILE.read_text() != text:
        print(f"{FILE} is outdated; run `make settings`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
