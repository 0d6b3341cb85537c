# `make run` judges the kernels of matmul_tt, `make test` runs all tests. Each first makes .venv if that is not there or
# out of date. Needs Python 3.11 or later, g++, git and pip.
PYTHON ?= python3
ACTIVE = . .venv/bin/activate &&

.PHONY: run test

run: .venv/installed
	$(ACTIVE) python harness.py --problem matmul_tt

test: .venv/installed-for-tests
	$(ACTIVE) .ci/tests

.venv/installed: requirements.txt
	$(PYTHON) -m venv .venv
	$(ACTIVE) python -m pip install --quiet -r requirements.txt
	touch $@

.venv/installed-for-tests: requirements.txt tests/requirements.txt
	$(PYTHON) -m venv .venv
	$(ACTIVE) python -m pip install --quiet -r tests/requirements.txt
	touch .venv/installed $@
