"""`python -m sdfeel` is the command line."""

from sdfeel.cli import main

if __name__ == "__main__":
    main()
