.PHONY: demo test test-fast check docs bench table campaign
PY := .venv/bin/python
IMAGES := LONGTAIL_DATA="$${LONGTAIL_DATA:-$$( [ -d ../shared/data ] && cd ../shared/data && pwd )}"
.venv/ready: pyproject.toml constraints/cpu.txt
	@sh .ci/setup
	@touch $@
demo: .venv/ready          ## set up and train on the embedded digits: cross-entropy against two-stage GCL
	@$(PY) examples/demo.py
test: .venv/ready          ## the whole test suite
	@$(IMAGES) $(PY) -m pytest
test-fast: .venv/ready     ## the suite without the slow marks
	@$(PY) -m pytest -m "not slow"
check: .venv/ready         ## format, lint, types, import layers, house rules
	@.venv/bin/ruff format --check . && .venv/bin/ruff check . && .venv/bin/lint-imports && $(PY) .ci/rules.py && .venv/bin/pyright
docs: .venv/ready          ## run every doctest and check every link of the documentation
	@$(PY) -m pytest -q --doctest-modules src tests/test_docs.py
bench: .venv/ready         ## every benchmark, written to benchmarks/results
	@for b in train_step $(filter-out train_step cached measure textbook textbook_losses,$(notdir $(basename $(wildcard benchmarks/*.py)))) cached; do \
	    $(IMAGES) $(PY) benchmarks/$$b.py || exit 1; done
table: .venv/ready         ## every table of the pages, from results/ and benchmarks/results/
	@$(PY) -m longtail.report.ledger results && for page in front methods speed; do $(PY) scripts/$${page}_page.py || exit 1; done
campaign: .venv/ready      ## train every cell of the paper track that is not finished yet
	@$(IMAGES) $(PY) -m longtail.recipes.campaign results
