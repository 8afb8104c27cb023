"""The `agent` tool: a turn of a named or default agent with a context of its own.

Runs in its parent's slot, has no `agent` tool itself, and reports a truthful status. What it costs is
its parent's, whose limits bind it, too; its working directory is its own.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from .builtins import built_in
from .calls.attempt import BuiltInContext
from .calls.permissions import Policy
from .calls.spills import Spills
from .catalog.skill import Snapshot
from .config import AgentConfig, Config
from .errors import ConfigError, ModelError
from .loop import run_turn
from .model.base import Model
from .opening import Plan, begin_turn, make_state
from .skill import ToolError
from .state import Outer, SessionState, Shared, Turn, TurnCancelled
from .types import Status, Tool, TurnResult

MAX_ITERATIONS = 10  # model requests in all: for a sub-agent the closing request is one of them
MOST_AT_ONCE = 64  # of all sessions; a session's own bound is [limits] max_parallel
REPORT_CHARS, REPORT_KEPT = 5000, 4500
PATIENCE = 1.5  # seconds a cancelled agent gets to say how far it came
PROMPT = (
    "You work on one task for another agent, who sees only your final answer. Report what you "
    "found and what you could not do."
)


def agent_tool(config: Config) -> Tool:
    """The tool as the config's agents describe it."""
    names = list(config.agents)
    about = "; ".join(f"{a.name}: {a.description}" for a in config.agents.values() if a.description)
    agent: dict[str, Any] = {"type": "string", "description": f"Which agent. {about}".strip()}
    if names:
        agent["enum"] = names
    return built_in(
        "agent",
        "Gives a self-contained task to a helper with a context of its own and returns its report. "
        "For work that would fill this conversation, or that can be done side by side; several "
        "calls run in parallel. The helper knows nothing but the task text.",
        run_agent,
        {
            "properties": {
                "task": {"type": "string", "minLength": 1, "description": "All it has to know"},
                "agent": agent,
            },
            "required": ["task"],
        },
        concurrent=True, max_concurrency=MOST_AT_ONCE, max_result_chars=REPORT_CHARS + 1000,
    )  # fmt: skip


async def run_agent(context: BuiltInContext, task: str, agent: str = "") -> str:
    """Runs the agent and returns its report. What did not end well is a failure with the same report."""
    shared = context.shared
    child = await _child(context, _role(context, agent))
    shared.sessions[child.id] = child
    child.emit(
        "agent.started",
        agent=child.agent,
        status="running",
        model=child.model.name,
        call_id=context.call_id,
    )
    try:
        result = await _run(context, child, _begun(context, child, task))
    finally:
        shared.sessions.pop(child.id, None)
    child.emit("agent.finished", agent=child.agent, status=result.status.value)
    said = await _sized(context, result.answer)
    if result.status is Status.COMPLETED:
        return said
    said = f"[The agent did not finish: {result.status.value} after {result.iterations} iteration(s). Partial findings:]\n{said}"
    raise TurnCancelled(said) if result.status is Status.CANCELLED else ToolError(said)


def unknown_skills(config: Config, snapshot: Snapshot) -> list[str]:
    """Skills that an agent is given and that nobody has: the usual sign of a typing error."""
    known = {skill.name for skill in snapshot.skills}
    return [
        f"agents.{role.name}.skills: there is no skill {name!r}"
        for role in config.agents.values()
        for name in role.skills
        if name not in known
    ]


async def _run(context: BuiltInContext, child: SessionState, turn: Turn) -> TurnResult:
    """The child's turn to its end. Whatever cancels the call cancels the child, which then says so."""
    parent = context.turn
    task = asyncio.ensure_future(run_turn(context.shared, child, turn))
    parent.helpers.add(turn.cancel)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        turn.cancel()
        await asyncio.wait([task], timeout=PATIENCE)
        ours = parent.cancelled or context.call_id in parent.cancelled_calls
        current = asyncio.current_task()
        if not (ours and task.done() and current is not None):
            task.cancel()
            raise
        current.uncancel()
        return task.result()
    finally:
        parent.helpers.discard(turn.cancel)


def _begun(context: BuiltInContext, child: SessionState, task: str) -> Turn:
    turn = begin_turn(context.shared, child, task)
    turn.outer = Outer(context.session, context.turn)
    ends = [end for end in (turn.deadline, context.turn.deadline) if end is not None]
    turn.deadline = min(ends) if ends else None
    return turn


async def _sized(context: BuiltInContext, text: str) -> str:
    """The report, or its beginning and where the whole of it is."""
    if len(text) <= REPORT_CHARS:
        return text
    note = f"report cut: {len(text)} characters in all"
    spills = Spills(context.shared.spills / context.session.id)
    try:
        name = await context.shared.workers.run(spills.keep, text)
    except OSError:  # a full disk: cut without a way to read the rest
        return f"{text[:REPORT_KEPT]} [{note}]"
    context.session.spilled = True
    return f'{text[:REPORT_KEPT]} [{note}; the whole of it: read_result("{name}")]'


def _role(context: BuiltInContext, agent: str) -> AgentConfig | None:
    if context.session.parent is not None:
        raise ToolError("a sub-agent cannot start another one; do the work yourself")
    agents = context.shared.config.agents
    if agent and agent not in agents:
        known = ", ".join(agents) or "none are configured; leave it out"
        raise ToolError(f"there is no agent {agent!r}; there are: {known}")
    return agents.get(agent)


async def _child(context: BuiltInContext, role: AgentConfig | None) -> SessionState:
    shared, parent = context.shared, context.session
    model = await _model(shared, parent, role)
    own = model is parent.model
    child_id = f"{parent.id}.{context.call_id}"
    plan = Plan(
        id=child_id,
        config=_child_config(parent.config, role, "" if own else model.name),
        model=model,
        info=parent.info if own else await model.describe(),
        policy=_child_policy(parent.policy, role),
        workspace=parent.workspace,
        prompt="\n\n".join(filter(None, (PROMPT, role.prompt if role else ""))),
        only_skills=_child_skills(parent.only_skills, role),
        stream=parent.stream,
    )
    child = make_state(plan, parent.reporter.child(child_id))
    child.parent, child.agent = parent.id, role.name if role else "default"
    child.cwd, child.remembered = parent.cwd, parent.remembered
    child.ledger = parent.ledger.of_agent(child_id)
    child.mode = parent.mode if own else child.mode
    return child


async def _model(shared: Shared, parent: SessionState, role: AgentConfig | None) -> Model:
    if role is None or role.model in {"", parent.model.name} or shared.model_for is None:
        return parent.model
    try:
        return await shared.model_for(role.model)
    except (ConfigError, ModelError) as error:
        raise ToolError(
            f"agent {role.name} cannot work: {error}. Do it yourself, or give it to another."
        ) from error


def _child_config(config: Config, role: AgentConfig | None, model: str) -> Config:
    limits = config.limits
    most = role.max_iterations if role else min(MAX_ITERATIONS, limits.max_iterations)
    limits = replace(limits, max_iterations=max(1, most - 1))
    if role is not None:
        limits = replace(
            limits,
            max_total_tokens=role.max_total_tokens or limits.max_total_tokens,
            max_cost=role.max_cost or limits.max_cost,
            turn_timeout=role.turn_timeout or limits.turn_timeout,
        )
    named = config.model.named(model) if model else config.model
    return replace(config, limits=limits, model=named)


def _child_policy(policy: Policy, role: AgentConfig | None) -> Policy:
    if role is None or not (role.permissions or role.tools):
        return policy
    return policy.narrowed(role.permissions, role.tools)


def _child_skills(outer: frozenset[str] | None, role: AgentConfig | None) -> frozenset[str] | None:
    if role is None or not role.skills:
        return outer
    own = frozenset(role.skills)
    return own if outer is None else own & outer
