"""The fault list: `@row(15, 17)` says which rows of it a test is about."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known."""
    config.addinivalue_line("markers", "row(*numbers): rows of the fault list a test is about")
