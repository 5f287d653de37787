"""A store in a marimo notebook, for questions that lead to the next one: `.venv/bin/marimo edit
data/queries/explore.py`.

Needs `uv pip install -e '.[notebook]'`. SQL reads the tables and nothing else; `rows` is the answer as a pyarrow table,
for cells of your own.
"""

import marimo

app = marimo.App(width="medium", app_title="r3l")


@app.cell
def _():
    import os
    from pathlib import Path

    import marimo as mo

    from flows.artifacts import image
    from r3l.audit.lines import Line
    from r3l.audit.web.sandbox import worked_questions
    from r3l.errors import StoreError
    from r3l.pipeline.summary import history
    from r3l.store.query import ask, connect_for_users
    from r3l.store.stage import Store

    here = Path(__file__).parent
    questions = {f"{int(one.name.split('_')[0])}. {one.asks}": one.sql for one in worked_questions(here)}
    return Line, Store, StoreError, ask, connect_for_users, here, history, image, mo, os, questions


@app.cell
def _(here, mo, os):
    root = mo.ui.text(os.environ.get("R3L_STORE") or str(here.parent / "sample_run"), label="store", full_width=True)
    root
    return (root,)


@app.cell
def _(Store, connect_for_users, mo, root):
    store = Store.open(root.value)
    connection = connect_for_users(store)
    lines = connection.execute("SELECT DISTINCT run, branch FROM stages WHERE iteration >= 0 ORDER BY ALL").fetchall()
    mo.stop(not lines, mo.md("There is no run in this store."))
    chosen = mo.ui.dropdown(
        [f"{run}/{branch}" if branch else run for run, branch in lines], value=lines[0][0], label="run"
    )
    chosen
    return chosen, connection, store


@app.cell
def _(Line, chosen, history, image, mo, store):
    line = Line.parse(chosen.value)
    mo.md(image(line, history(store, *line.place)))
    return


@app.cell
def _(mo, questions):
    worked = mo.ui.dropdown(questions, value=next(iter(questions)), label="a worked question", full_width=True)
    worked
    return (worked,)


@app.cell
def _(mo, worked):
    sql = mo.ui.code_editor(worked.value, language="sql", label="SQL: change it, then leave the field")
    sql
    return (sql,)


@app.cell
def _(StoreError, ask, connection, mo, sql):
    try:
        rows = ask(connection, sql.value)
        shown = mo.ui.table(rows.to_pylist(), selection=None, page_size=15)
    except StoreError as error:
        rows, shown = None, mo.plain_text(str(error))
    shown
    return (rows,)


if __name__ == "__main__":
    app.run()
