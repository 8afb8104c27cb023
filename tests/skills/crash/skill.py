import sys

sys.exit(3)


def crash() -> str:
    return "never"
