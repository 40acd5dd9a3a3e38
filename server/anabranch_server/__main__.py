"""`python -m anabranch_server` is `anabranch`."""

from anabranch_server.cli import main

if __name__ == "__main__":
    main()
