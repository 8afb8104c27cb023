"""What the shared options come to: a config, a console, and a log that goes to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import Config, load_config
from ..errors import ConfigError
from .console import Console
from .logs import configure


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What the shared options said, before or after the command's name."""

    console: Console
    options: Mapping[str, Any]
    sets: tuple[str, ...] = ()
    file: Path | None = None
    debug: bool = False
    verbose: int = 0

    def load(self, *, warn: bool = True, **tables: Mapping[str, Any]) -> Config:
        """The config, `tables` (such as `watch={"backend": "off"}`) over everything else.

        Raises `ConfigError` with all problems; prints the config's warnings.
        """
        place = self.options.get("paths.workspace")
        if place and not Path(place).is_dir():
            raise ConfigError(
                f"--workspace: {place} is not a folder; make it first, or name another"
            )
        more = {f"{table}.{key}": v for table, keys in tables.items() for key, v in keys.items()}
        config = load_config(file=self.file, sets=self.sets, options={**self.options, **more})
        for warning in config.warnings if warn else ():
            self.console.warn(warning)
        for root in self.options.get("paths.skills") or ():
            if warn and not Path(root).is_dir():
                self.console.warn(f"--skills: there is no folder {root}; it is watched for")
        return config


def open_common(said: Mapping[str, Any]) -> Common:
    """Opens the console and the log for one command."""
    console = Console.taking_stdout()
    console.quiet = bool(said["quiet"])
    verbose = 2 if said["debug"] else said["verbose"]
    configure(console, verbose=verbose)
    return Common(
        console=console,
        sets=tuple(said["sets"]),
        file=said["config"],
        options={
            "model.name": said["model"],
            "paths.skills": list(said["skills"]) or None,
            "paths.workspace": said["workspace"],
            "paths.state": said["state"],
        },
        debug=bool(said["debug"]),
        verbose=verbose,
    )
