"""The `agent` tool: a turn of a named or default agent with a context of its own.

Runs in its parent's slot, has no `agent` tool itself, and reports a truthful status. Its cost is
the parent's; its working directory is its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .builtins import built_in
from .calls.attempt import BuiltInContext
from .calls.permissions import Policy
from .config import AgentConfig, Config
from .loop import run_turn
from .opening import Plan, begin_turn, make_state
from .skill import ToolError
from .state import SessionState, Shared
from .types import Status, Tool, TurnResult

MAX_ITERATIONS = 10  # model requests in all: for a sub-agent the closing request is one of them
REPORT_CHARS, REPORT_KEPT = 5000, 4500
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
        concurrent=True, max_result_chars=REPORT_CHARS + 1000,
    )  # fmt: skip


async def run_agent(context: BuiltInContext, task: str, agent: str = "") -> str:
    """Runs the agent and returns its report. A failure is a report with a truthful status."""
    shared, parent = context.shared, context.session
    if parent.parent is not None:
        raise ToolError("a sub-agent cannot start another one; do the work yourself")
    role = shared.config.agents.get(agent) if agent else None
    if agent and role is None:
        known = ", ".join(shared.config.agents) or "none are configured; leave it out"
        raise ToolError(f"there is no agent {agent!r}; there are: {known}")
    child = await _child(shared, parent, role, context.call_id)
    child.emit("agent.started", agent=agent or "default", session_id=child.id, status="running")
    turn = begin_turn(shared, child, task)
    with context.turn.cancellable(turn.cancel):
        try:
            result = await run_turn(shared, child, turn)
        finally:
            shared.sessions.pop(child.id, None)
            context.turn.usage += turn.usage
            context.turn.cost += turn.cost
            parent.usage += turn.usage
            parent.cost += turn.cost
    parent.emit(
        "agent.finished", agent=agent or "default", status=result.status.value, child=child.id
    )
    return report(result)


def report(result: TurnResult) -> str:
    """What the parent is told: the status when it is not a success, then the findings, cut to size."""
    text = result.answer
    if len(text) > REPORT_CHARS:
        text = f"{text[:REPORT_KEPT]} [report cut: {len(text)} characters in all]"
    if result.status is Status.COMPLETED:
        return text
    return f"[The agent did not finish: {result.status.value} after {result.iterations} iteration(s). Partial findings:]\n{text}"


async def _child(
    shared: Shared, parent: SessionState, role: AgentConfig | None, call_id: str
) -> SessionState:
    config = _child_config(parent.config, role)
    model, info = parent.model, parent.info
    if role is not None and role.model not in {"", model.name} and shared.model_for is not None:
        model = await shared.model_for(role.model)
        info = await model.describe()
    child_id = f"{parent.id}.{call_id}"
    plan = Plan(
        id=child_id,
        config=config,
        model=model,
        info=info,
        policy=_child_policy(parent.policy, role),
        workspace=parent.workspace,
        prompt="\n\n".join(filter(None, (PROMPT, role.prompt if role else ""))),
        only_skills=frozenset(role.skills) if role and role.skills else parent.only_skills,
        stream=parent.stream,
    )
    child = make_state(plan, parent.reporter.child(child_id))
    child.parent, child.agent = parent.id, role.name if role else "default"
    child.cwd = parent.cwd
    child.mode = parent.mode if model is parent.model else child.mode
    shared.sessions[child_id] = child
    return child


def _child_config(config: Config, role: AgentConfig | None) -> Config:
    most = role.max_iterations if role else MAX_ITERATIONS
    limits = replace(config.limits, max_iterations=max(1, most - 1))
    if role is not None:
        limits = replace(
            limits,
            max_total_tokens=role.max_total_tokens or limits.max_total_tokens,
            max_cost=role.max_cost or limits.max_cost,
            turn_timeout=role.turn_timeout or limits.turn_timeout,
        )
    return replace(config, limits=limits)


def _child_policy(policy: Policy, role: AgentConfig | None) -> Policy:
    if role is None or not (role.permissions or role.tools):
        return policy
    return policy.narrowed(role.permissions, role.tools)
