# Each target sets up what it needs: a virtual environment in .venv, dependencies at the versions of requirements.lock.
PYTHON ?= python3
DESCRIPTOR ?= dense-sift
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-engines mutants test-timm soak check format docs wheel wheel-test bench quick lock clean

$(VENV)/.ready: pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "lnbnn needs Python 3.11 or newer; set PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable '.[deep-small,demo,flann,page,dev]'
	touch $@

demo: $(VENV)/.ready ## the whole job on built-in photographs; pictures in demo-output/; DESCRIPTOR=deep for another
	$(BIN)/lnbnn demo --output demo-output --descriptor $(DESCRIPTOR)

test: $(VENV)/.ready ## all tests
	$(BIN)/python -m pytest

test-engines: $(VENV)/.engines .venv-milvus/.ready ## tests on real servers and clusters, which they start and end themselves
	$(BIN)/python -m pytest tests/test_indexes.py -k milvus
	$(BIN)/python -m pytest tests -m engines

$(VENV)/.engines: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable '.[milvus,ray]'
	touch $@

.venv-milvus/.ready: ## the server, whose pins others do not bear
	$(PYTHON) -m venv .venv-milvus
	.venv-milvus/bin/python -m pip install --quiet 'milvus==2.3.5' 'setuptools<80'
	touch $@

mutants: $(VENV)/.ready ## plant bugs, one at a time: do the tests see them? A few minutes
	$(BIN)/python tests/mutants.py

soak: $(VENV)/.ready ## the long form of the tests of changing models, under 20 minutes; writes results/soak.json
	$(BIN)/python benchmarks/soak.py --minutes 15

test-timm: $(VENV)/.ready ## tests of timm descriptors and of their export; installs PyTorch first (several GB)
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable '.[timm]'
	$(BIN)/python -m pytest tests/test_timm_network.py

check: $(VENV)/.ready ## format, lint, types, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

format: $(VENV)/.ready ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.ready ## speed against peers, on a real subset; writes records and plots (Caltech 101 needed)
	$(BIN)/python -m pip install --quiet --constraint requirements.lock hnswlib || echo "hnswlib is left out"
	$(BIN)/python benchmarks/dense_sift.py --again
	$(BIN)/python benchmarks/search.py --again
	$(BIN)/python benchmarks/growth.py --again
	$(BIN)/python benchmarks/start_up.py --again
	$(BIN)/python benchmarks/write_tables.py

quick: $(VENV)/.ready ## every experiment of the paper on a few classes
	$(BIN)/lnbnn reproduce all --quick --runs runs/quick --output runs/quick/results

docs: $(VENV)/.docs ## the documentation site, in site/; warnings are errors, and every link is followed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python docs/check_site.py site

$(VENV)/.docs: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable '.[docs]'
	touch $@

wheel: $(VENV)/.ready ## sdist and wheel, in dist/
	rm -rf dist
	$(BIN)/python -m build --quiet
	ls -l dist

wheel-test: wheel ## install the wheel into empty environments, one per Python that is here, and use it there
	$(BIN)/python tests/try_wheel.py dist/*.whl

lock: ## update requirements.lock to the newest allowed versions
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --no-header --no-annotate --no-emit-index-url pyproject.toml --output-file requirements.lock

clean: ## remove everything that can be made again
	rm -rf $(VENV) .venv-milvus demo-output runs dist site .mypy_cache .ruff_cache .pytest_cache
