"""The one table of what an iteration came to: the view `iterations`, the terminal, the artifacts, the audit pages and
the trackers read it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of an iteration.

    Args:
        column: its name in the view `iterations` and in trackers.
        source: the part of r3l/store/views/iterations.sql that it is taken over; "iterations": it is not in the view,
            but made of its columns.
        sql: the expression, over the rows that the iteration has there.
        name: what people read.
        format: how the terminal and the artifacts write it; the audit pages follow it: % a share, d a count, + a sign.
        unit: of the axis of its chart.
        chart: the chart of the audit pages that it is a line of; "": one of its own; None: in no chart.
        line: its name in a chart with others.
        shown: it is a figure of `r3l iterate`, of the artifacts and, where it is followed, of `r3l status` and of the
            comparison in the audit app.
        followed: the audit pages and the trackers have it for every iteration. What reads every token is not.
    """

    column: str
    source: str
    sql: str
    name: str
    format: str = "{:.3f}"
    unit: str = ""
    chart: str | None = ""
    line: str = ""
    shown: bool = True
    followed: bool = True


def unseen(column: str, source: str, sql: str = "", followed: bool = False) -> Metric:
    """Make a figure of the view that is no figure of its own elsewhere; `followed`: trackers have it."""
    return Metric(column, source, sql or column, column.replace("_", " "), chart=None, shown=False, followed=followed)


def of_steps(column: str) -> str:
    """Write the mean over the updates that took a step: of the others it says nothing."""
    return f"avg({column}) FILTER (tokens_computed > 0)"


# In the order of the view.
METRICS = (
    Metric(
        "stage_seconds", "stages", "sum(seconds)", "seconds of all stages", chart="Seconds", line="stages", shown=False
    ),
    unseen("tasks", "base", "count(DISTINCT task)", followed=True),
    unseen("bases", "base", "count(*)", followed=True),
    Metric("base_reward", "base", "avg(reward)", "base reward", chart="Reward", line="base"),
    Metric("base_success", "base", "avg(success::INTEGER)", "base success", "{:.1%}", chart="Success", line="base"),
    Metric("base_turns", "base", "avg(turns)", "base turns", chart="Pivot", line="turns of a base", shown=False),
    Metric("failed_attempts", "attempts", "count(*)", "attempts that failed", "{:d}", chart=None, followed=False),
    unseen("reflections", "reflections", "count(*)", followed=True),
    Metric(
        "parse_rate",
        "reflections",
        "avg((status = 'parsed')::INTEGER)",
        "reflections that parse",
        "{:.1%}",
        chart="Reflections that parse",
    ),
    Metric("retries", "pivots", "count(*)", "retries", "{:d}", chart=None),
    Metric("retry_reward", "pivots", "avg(retry_reward)", "retry reward", chart="Reward", line="retry", shown=False),
    Metric(
        "retry_success",
        "pivots",
        "avg(retry_success::INTEGER)",
        "retry success",
        "{:.1%}",
        chart="Success",
        line="retry",
    ),
    Metric(
        "retry_improvement",
        "pivots",
        "avg((gain > 0)::INTEGER)",
        "retry improvement rate",
        "{:.1%}",
        chart="Improvement rate",
        line="all",
    ),
    Metric(
        "retry_improvement_failed",
        "pivots",
        "avg((gain > 0)::INTEGER) FILTER (NOT base_success)",
        "retry improvement rate of failed bases",
        "{:.1%}",
        chart="Improvement rate",
        line="of failed bases",
        shown=False,
    ),
    Metric("reward_gain", "pivots", "avg(gain)", "gain of a retry", "{:+.3f}", chart="Gain"),
    unseen("reward_gain_relative", "pivots", "(avg(retry_reward) - avg(base_reward)) / nullif(avg(base_reward), 0)"),
    Metric("pivot_mean", "pivots", "avg(pivot_turn)", "mean pivot", "{:.2f}", chart="Pivot", line="pivot"),
    unseen("pivot_fraction", "pivots", "avg(pivot_fraction)", followed=True),
    unseen("diverged", "pivots", "count(*) FILTER (retry_status = 'diverged')", followed=True),
    unseen("distilled", "distilled", "count(*)", followed=True),
    unseen("continuations", "continuations", "count(*)", followed=True),
    unseen("continued_turns", "continuations", "sum(turns - pivot_turn)::BIGINT", followed=True),
    Metric("groups", "groups", "count(*)", "groups", "{:d}", chart=None),
    Metric("mixed_groups", "groups", "count(*) FILTER (mixed)", "mixed-reward groups", "{:d}", chart=None),
    Metric(
        "mixed_share",
        "iterations",
        "mixed_groups / nullif(groups, 0)",
        "share of mixed groups",
        "{:.1%}",
        chart="Mixed groups",
        shown=False,
    ),
    unseen("positive_share", "dominance"),
    unseen("positive_mean", "dominance"),
    unseen("negative_mean", "dominance"),
    Metric("alpha_min", "dominance", "alpha_min", "least alpha for dominance", "{:.2f}", chart=None, followed=False),
    unseen("positive_mass", "dominance"),
    unseen("negative_mass", "dominance"),
    Metric("dominance", "dominance", "dominance", "positive over negative mass", "{:.2f}", chart=None, followed=False),
    Metric(
        "variance_ratio",
        "dominance",
        "variance_ratio",
        "share of reply tokens trained",
        "{:.1%}",
        chart=None,
        followed=False,
    ),
    Metric(
        "outcome_accuracy",
        "confusion",
        "sum(reflections) FILTER (correct) / nullif(sum(reflections) FILTER (correct IS NOT NULL), 0)::DOUBLE",
        "reflections that judge right",
        "{:.1%}",
        chart=None,
        followed=False,
    ),
    Metric("training_rows", "training_rows", "count(*)", "training rows", "{:d}", chart=None),
    Metric(
        "trained_tokens",
        "training_rows",
        "sum(trained_tokens)::BIGINT",
        "trained tokens",
        "{:,d}",
        chart="Trained tokens",
    ),
    unseen("sequence_tokens", "training_rows", "sum(nullif(len(token_ids), 0))::BIGINT"),
    Metric("loss", "updates", of_steps("loss"), "loss", "{:.4f}", chart="Loss", line="total"),
    Metric("loss_rl", "updates", of_steps("loss_rl"), "RL term", "{:.4f}", chart="Loss", line="RL"),
    Metric("loss_sft", "updates", of_steps("loss_sft"), "SFT term", "{:.4f}", chart="Loss", line="SFT"),
    unseen("loss_kl", "updates", of_steps("loss_kl"), followed=True),
    Metric("grad_norm", "updates", of_steps("grad_norm"), "gradient norm", chart="Gradient norm"),
    Metric("entropy", "updates", of_steps("entropy"), "entropy (nats)", chart="Entropy"),
    unseen("kl_behaviour", "updates", of_steps("kl_behaviour"), followed=True),
    Metric(
        "kl_start",
        "updates",
        of_steps("kl_start"),
        "KL to the starting policy",
        "{:.2e}",
        chart="KL to the starting policy",
    ),
    # Of an update of several steps: where its last one ended, and the shortest of them.
    Metric("drift", "updates", "arg_max(drift, step)", "drift of the update", "{:.2e}", chart="Drift", shown=False),
    unseen("step_share", "updates", "min(step_share)", followed=True),
    unseen("clip_fraction", "updates", of_steps("clip_fraction")),
    unseen("ratio_mean", "updates", of_steps("ratio_mean")),
    # Of trainer to engine, where the update stored its scores.
    unseen("sampler_ratio_mean", "sampler_ratios", "list_avg(flatten(list(ratios)))"),
    unseen("sampler_ratio_p99", "sampler_ratios", "list_aggregate(flatten(list(ratios)), 'quantile_cont', 0.99)"),
    unseen(
        "sampler_cut", "sampler_ratios", "sum(cut_tokens) / nullif(sum(len(ratios)) FILTER (cut_tokens IS NOT NULL), 0)"
    ),
    unseen("reference_tokens", "updates", "sum(reference_tokens)::BIGINT"),
    Metric("canary_error", "updates", "max(canary_error)", "canary error", "{:.1e}", chart=None),
    Metric(
        "update_seconds",
        "updates",
        "sum(seconds)",
        "seconds of the update",
        chart="Seconds",
        line="update",
        shown=False,
    ),
    Metric("evaluation_reward", "evaluations", "avg(reward)", "held-out reward", chart="Reward", line="held-out"),
    Metric(
        "evaluation_success",
        "evaluations",
        "avg(success::INTEGER)",
        "held-out success",
        "{:.1%}",
        chart="Success",
        line="held-out",
        shown=False,
    ),
    unseen("evaluated", "evaluations", "count(*)", followed=True),
)
FOLLOWED = tuple(metric for metric in METRICS if metric.followed)


def select_lists() -> dict[str, str]:
    """Map a source to its columns of the view `iterations`, in SQL."""
    lists: dict[str, list[str]] = {}
    for metric in METRICS:
        if metric.source != "iterations":
            lists.setdefault(metric.source, []).append(f"{metric.sql} AS {metric.column}")
    return {source: ", ".join(columns) for source, columns in lists.items()}


def expressions() -> dict[str, str]:
    """Map a column to its SQL, over the rows of its source."""
    return {metric.column: metric.sql for metric in METRICS}
