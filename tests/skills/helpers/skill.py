import helper

from . import helper as same
from .parts import deep


def helpers() -> list:
    return [helper.NAME, same.NAME, deep.NAME]
