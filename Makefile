# Two commands on a fresh machine: `make iterate` (one R3L iteration) and `make test`.
VENV ?= .venv
R3L := $(VENV)/bin/r3l
STAMP := $(VENV)/.ready
MAIN := $(VENV)/.ready-to-iterate
NEEDS := pyproject.toml infra/setup.sh $(wildcard infra/constraints/*.txt)

.PHONY: iterate test test-extras setup slow lint docs sample-run clean

iterate: $(if $(wildcard $(STAMP)),$(STAMP),$(MAIN))  ## one training iteration of the run `demo`; again: the next one
	@$(R3L) iterate --run demo --preset r3l_small_steps --set training.learning_rate=3e-4

test: setup  ## the fast suite, three processes on the two cores of a small machine; a hundred more read what they compiled
	@PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

setup: $(STAMP)  ## what every command here and most environments need: half as much again as `make iterate` installs

$(STAMP): $(NEEDS)
	@VENV=$(VENV) bash infra/setup.sh
	@touch $@

$(MAIN): $(NEEDS)
	@VENV=$(VENV) R3L_EXTRAS=trainer,alfworld bash infra/setup.sh
	@touch $@

test-extras:  ## the tests that need an extra which `make setup` leaves out, in an environment of their own (.venv-extras)
	@bash infra/extras.sh

slow: setup  ## the tests that take minutes
	@$(VENV)/bin/python -m pytest -m slow --timeout 3600

sample-run: setup  ## make data/sample_run and the cookbook's answers anew: two iterations, a minute or two
	@$(VENV)/bin/python -m tests.support.sample_run

lint: setup
	@$(VENV)/bin/ruff check . && $(VENV)/bin/mypy

docs: setup  ## the documentation site in build/site; a link that leads nowhere fails it
	@test -x .venv-docs/bin/zensical || { $(VENV)/bin/python -m venv .venv-docs && .venv-docs/bin/python -m pip install --quiet 'zensical>=0.0.73,<0.2'; }
	@$(VENV)/bin/python infra/site/build.py

clean:
	rm -rf $(VENV) .venv-extras .venv-extras-mcp .venv-docs .prefect build *.egg-info
