# make demo   the embedded default search, from nothing          make test    all tests that need no cluster
# make check  ruff, mypy, import-linter                          make bench   speed, as ratios in one run
# make cluster-test   the composed cluster, killed and cut off; needs a container engine. With ENGINE=SCRIPT, one is started for
#                     it with `SCRIPT up` and stopped with `SCRIPT down`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test cluster-test check bench lock clean

demo: $(INSTALLED)
	$(BIN)/see-tune run search_spaces/glyphs.yaml

test: $(INSTALLED)
	$(BIN)/python -m pytest

cluster-test: $(INSTALLED)
	$(if $(ENGINE),$(ENGINE) up)
	$(BIN)/python -m pytest -m cluster tests/cluster; code=$$?; $(if $(ENGINE),$(ENGINE) down;) exit $$code

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(INSTALLED)
	@for file in tests/benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

$(INSTALLED): pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint requirements.lock --editable '.[cpu,dev]'
	touch $@

# After a change of dependencies: install them, then write down what was installed.
lock:
	$(BIN)/pip freeze --exclude-editable > requirements.lock

clean:
	rm -rf $(VENV) build *.egg-info
