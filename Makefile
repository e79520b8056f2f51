# Needs Python 3.11 or newer and make. Each target does its own set-up in .venv, and in clients/ts/node_modules; nothing is
# installed outside of them.

SHELL  := /bin/sh
VENV   ?= .venv
JOBS   ?= 6
BIN    := $(VENV)/bin
# The first that is new enough and can make a venv. A name on the PATH need not work (pyenv's shims), so each is run.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo "$$p" && break; done)
# What is checked, as far as it is there.
CODE   := $(wildcard lanebus tests examples bench docs)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-all laws bundled uvloop backends check count walks bench reference docs dist client clean

help:  ## what can be asked for
	@echo 'make demo    an agent over both lanes, shown in the browser, on an embedded server'
	@echo 'make test    the quick set of the tests, in about four minutes; what needs a missing program is skipped'
	@echo 'make test-all  all tests, on all servers and at their full counts, with bundled, uvloop and backends'
	@echo 'make laws    laws and property tests at their full counts; LANEBUS_SEED=random for a new seed'
	@echo 'make uvloop  what the bus promises, on uvloop in place of the loop of asyncio, on one kind of server'
	@echo 'make bundled  the bundle of the page that a wheel has, with a few tests in a browser'
	@echo 'make backends  the frameworks that lanebus stores for, with their own tests'
	@echo 'make check   ruff, pyright strict, mypy strict'
	@echo 'make count   lines of code, files and shares, for each ring and package'
	@echo 'make walks   the files that one publish, read, turn or request crosses'
	@echo 'make bench   the figures, as ratios to plain redis-py in the same run'
	@echo 'make dist    the source distribution and the wheel, in dist/'
	@echo 'make client  the TypeScript client, built and packed in clients/ts'
	@echo 'make reference  the parts of docs/ that are made from code, such as the tables of settings, made anew'
	@echo 'make docs    the documentation, as a site in build/site; a warning or a dead link fails it'
	@echo 'make clean   remove the set-up and all caches'
	@echo
	@echo 'Python: $(or $(PYTHON),none found that is 3.11 or newer and has venv); another one: make PYTHON=python3.12 …'

# Ctrl-C is how the demo ends, so its exit code 130 is no error. The trap keeps the shell until the demo has ended.
demo: $(VENV)/.run
	@trap : INT; $(BIN)/lanebus demo || test $$? -eq 130

# Tests wait on servers, so there are more processes than cores. A process that is done takes tests from the others.
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# Each process collects all tests, which takes as long as a tenth of the quick set: fewer processes.
test: JOBS := 3
test: $(VENV)/.test
	$(PYTEST) -m 'not full' --ignore tests/backends

# Each part runs although one before it failed. FAILED is a file that gets the names of those that failed.
FAILED ?= /dev/null
test-all: export LANEBUS_SCALE := 1
test-all: $(VENV)/.check
	@failed=; \
	$(PYTEST) --ignore tests/backends || failed="$$failed tests"; \
	for part in bundled uvloop backends; do $(MAKE) --no-print-directory $$part || failed="$$failed $$part"; done; \
	echo $$failed >$(FAILED); test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

laws: $(VENV)/.test
	LANEBUS_SCALE=1 $(PYTEST) -k 'laws or hypothesis'

UI := tests/handlers/serve/page
# The core of the page.
BUNDLED := \
	$(UI)/test_page.py::test_a_question_is_answered_in_both_lanes_and_survives_a_reload \
	$(UI)/test_page.py::test_a_preview_grows_in_place_until_the_complete_message_replaces_it \
	$(UI)/test_page_control.py::test_a_waiting_call_is_shown_with_its_arguments_and_approved_by_a_click \
	$(UI)/test_page_log.py::test_find_goes_to_matches_in_the_whole_log_and_unfolds_them \
	$(UI)/test_page_opening.py::test_the_entries_in_view_are_requested_before_the_list_and_the_inbox \
	$(UI)/test_page_time.py::test_the_charts_are_loaded_when_they_are_opened_and_say_their_values_in_words \
	$(UI)/test_page_time.py::test_the_timeline_shows_loops_turns_calls_tools_waits_and_sub_agents_in_order

bundled: $(VENV)/.test
	LANEBUS_PAGE=bundle $(PYTEST) $(BUNDLED)

uvloop: $(VENV)/.test
	LANEBUS_LOOP=uvloop $(PYTEST) tests/contract -m 'not cluster and not sentinel' -k 'not redis and not tiny'

backends: $(VENV)/.backends
	$(PYTEST) -k 'backends or needs' tests/backends tests/test_pages.py tests/test_public_api.py

check: $(VENV)/.check
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/mypy $(CODE)
	$(BIN)/mypy .ci/pin
	$(BIN)/mypy .ci/pinned
	$(BIN)/mypy .ci/dist
	$(BIN)/mypy .ci/bundle
	$(BIN)/mypy .ci/count

count:
	@$(PYTHON) .ci/count --packages

walks: $(VENV)/.backends
	$(BIN)/python -m bench.walks

bench: $(VENV)/.run
	$(BIN)/python -m bench

# The bundle of the page is made by esbuild, which is in the lock file of the client; Node is of the environment of the tests.
dist: $(VENV)/.test
	$(BIN)/python -m tests.support.node.install client
	$(BIN)/python .ci/dist $(TAG)

# Node and npm are of the environment of the tests.
client: $(VENV)/.test
	$(BIN)/python -m tests.support.node.install client
	cd clients/ts && PATH="$(abspath $(BIN)):$$PATH" && npm pack && npm run check

reference: $(VENV)/.test
	$(BIN)/python -m docs.site.reference

docs: $(VENV)/.docs
	$(BIN)/python -m docs.site

clean:
	rm -rf clients/ts/node_modules clients/ts/dist clients/ts/src/schema.ts clients/ts/*.tgz
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find bus handlers tests examples bench docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# --- set-up -----------------------------------------------------------------------------------------------------
# A stamp is newer than what it was made from, or its set is installed again. `.test` holds all of `.run`, `.docs` of
# `.test`, `.backends` of `.docs`, and `.check` of `.backends`, as all code is checked. Wheels only: what a source archive
# builds with would be fetched without any hash. For the same reason the project itself is built with the pinned
# setuptools, not in an environment that pip fills on its own. `--no-deps`: the pins name all that is needed, which
# `pip check` proves. pip's resolver would look at the newest release of what is asked for with an extra, as in
# `google-auth[requests]`, and refuse it for want of a hash.

PINS := .ci/constraints.txt pyproject.toml .ci/pinned
PIP  := $(BIN)/python -m pip --disable-pip-version-check --quiet

define install
@echo 'installing the pinned packages: $(1)'
@$(BIN)/python .ci/pinned $(1) > $@.txt
@$(PIP) install --require-hashes --no-deps --only-binary :all: -r $@.txt
@$(PIP) install --no-deps --no-build-isolation --editable .
@$(PIP) check
@touch $@
endef

$(VENV)/.python:
	@test -n '$(PYTHON)' || { \
		echo 'lanebus needs Python 3.11 or newer with its venv module, and none was found.' >&2; \
		echo 'Debian, Ubuntu: apt-get install python3 python3-venv. macOS: brew install python@3.13.' >&2; \
		echo 'If it is under another name: make PYTHON=/path/to/python3 …' >&2; exit 1; }
	@'$(PYTHON)' -c 'import sys; v = sys.version_info; \
		sys.exit(None if v >= (3, 11) else f"lanebus needs Python 3.11 or newer; $(PYTHON) is {v[0]}.{v[1]}")'
	@'$(PYTHON)' -m venv --clear $(VENV) || { \
		echo '$(PYTHON) cannot make a venv. Debian, Ubuntu: apt-get install python3-venv.' >&2; exit 1; }
	@touch $@

$(VENV)/.run: $(VENV)/.python $(PINS)
	$(call install,build run)

# Node's packages are for some tests only; without a network these tests are skipped by name.
$(VENV)/.test: $(VENV)/.run tests/support/node/package-lock.json clients/ts/package-lock.json
	$(call install,build run test)
	@$(BIN)/python -m tests.support.node.install || true

$(VENV)/.docs: $(VENV)/.test
	$(call install,build run test docs)

$(VENV)/.backends: $(VENV)/.docs
	$(call install,build run test docs backends)
	@$(BIN)/python -m tests.support.backends.sources

$(VENV)/.check: $(VENV)/.backends
	$(call install,build run test docs backends check)
