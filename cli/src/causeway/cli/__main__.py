"""``python -m causeway.cli``."""

from causeway.cli.main import main

if __name__ == "__main__":
    main()
