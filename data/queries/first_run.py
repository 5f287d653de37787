"""From nothing to a plot in ten cells, as a marimo notebook: `.venv/bin/marimo edit data/queries/first_run.py`.

Needs `uv pip install -e '.[notebook,experiments]'`. It trains the small policy that ships for three iterations, a few
minutes of a laptop; opened again it goes on from what is stored. `R3L_STORE` names another store, `R3L_TASKS` another
size.
"""

import marimo

app = marimo.App(width="medium", app_title="r3l, a first run")


@app.cell
def _():
    import os

    import marimo as mo
    import matplotlib.pyplot as plt

    import r3l

    return mo, os, plt, r3l


@app.cell
def _(mo):
    mo.md("# A first run\nA small policy learns errands in a small house. It reflects on what fails, and retries.")
    return


@app.cell
def _(os, r3l):
    config = r3l.compose(
        run="first",
        environment="household",
        policy="household",
        settings={
            "environment.level": "easy",
            "rollout.tasks": int(os.environ.get("R3L_TASKS", "8")),
            "rollout.group_size": 4,
            "store.root": os.environ.get("R3L_STORE", ""),
        },
    )
    config
    return (config,)


@app.cell
def _(config, mo, r3l):
    iterations = 3
    with mo.status.progress_bar(total=iterations, title="training") as bar:
        figures = r3l.train(config, iterations, on_iteration=lambda ended: bar.update())
    trained = len(figures)
    return (trained,)


@app.cell
def _(config, r3l, trained):
    tables = r3l.open_store(config.store.root)
    run = tables.run("first")
    run.name, trained
    return (run,)


@app.cell
def _(run):
    progress = run.sql(
        "SELECT iteration, base_success, retry_success, mixed_groups, loss FROM iterations ORDER BY iteration"
    ).pandas()
    progress
    return (progress,)


@app.cell
def _(plt, progress):
    picture, axes = plt.subplots(figsize=(6, 3), layout="constrained")
    axes.plot(progress["iteration"], progress["base_success"], marker="o", label="unguided attempts")
    axes.plot(progress["iteration"], progress["retry_success"], marker="s", label="guided retries")
    axes.set(xlabel="iteration", ylabel="success rate", ylim=(0, 1.05), xticks=progress["iteration"])
    axes.legend()
    picture
    return (picture,)


@app.cell
def _(run):
    reasons = run.sql(
        "SELECT outcome, pivot_turn, count(*) AS retries, avg(gain) AS gain FROM pivots GROUP BY ALL ORDER BY ALL"
    ).arrow
    reasons
    return (reasons,)


@app.cell
def _(run):
    counterfactual = run.replay(0, settings={"method.alpha": 5}, to_stage="training_rows")
    str(counterfactual)
    return (counterfactual,)


@app.cell
def _(mo, run):
    findings = run.check()
    mo.md("The run is what it says it is." if not findings else "\n".join(map(str, findings)))
    return (findings,)


if __name__ == "__main__":
    app.run()
