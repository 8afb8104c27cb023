"""An embedded, session-slotted runner for drop-in skills."""

from __future__ import annotations

from .skill import SkillContext, ToolError

__all__ = ["SkillContext", "ToolError"]
