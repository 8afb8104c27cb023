"""The board: what a runner is doing now, as plain data."""

from __future__ import annotations

from typing import Any

from .slots import Slots
from .state import SessionState, Shared


def board(shared: Shared, slots: Slots | None, watcher: Any) -> dict[str, Any]:
    """Slots, queues, calls in flight, breakers, gates, skills and their problems."""
    now = shared.clock()
    skills = shared.registry.snapshot.skills
    return {
        "slots": _places(slots) if slots else {"limit": 0, "used": 0, "waiting": 0},
        "model": _places(shared.model_gate),
        "sessions": [_session(s) for s in shared.sessions.values()],
        "calls": [
            {"call_id": call_id, "session": session, "tool": tool, "seconds": round(now - began, 3)}
            for (session, call_id), (tool, began) in shared.in_flight.items()
        ],
        "abandoned": sorted(tool for tool, _job in shared.abandoned.values()),
        "stuck": {skill: count for skill, count in shared.stuck.items() if count > 0},
        "breakers": {n: b.describe() for n, b in shared.breakers.items() if b.state != "closed"},
        "gates": {n: _places(g) for n, g in shared.gates.items() if g.used or g.waiting},
        "skills": {
            "ready": sum(s.state == "ready" for s in skills),
            "problems": [
                {"name": s.name, "state": s.state, "reason": s.reason}
                for s in skills
                if s.state != "ready"
            ],
        },
        "watch": getattr(watcher, "backend", "off") if watcher else "off",
        "skill_loops_replaced": shared.skill_loop.replaced,
    }


def _places(gate: Any) -> dict[str, int]:
    return {"limit": gate.limit, "used": gate.used, "waiting": gate.waiting}


def _session(s: SessionState) -> dict[str, Any]:
    return {
        "id": s.id,
        "parent": s.parent,
        "agent": s.agent,
        "turn": s.turns,
        "iteration": s.turn.iteration if s.turn else 0,
        "running": s.turn is not None,
        "mode": s.mode,
        "context_tokens": s.window.tokens,
        "context_window": s.context_window,
        "usage": {"input_tokens": s.usage.input_tokens, "output_tokens": s.usage.output_tokens},
        "cost": round(s.cost, 6),
    }
