# Two commands matter: `make demo` shows what gen-seed does, `make test` runs everything.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest
# auto: the boot tests run where they can; required: a missing piece of theirs is a failure.
BOOT ?= auto
# As many processes run tests, those of a file in one; those that boot machines mostly wait.
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PYTEST := pytest -n $(JOBS) --dist loadfile
DEMO := out/demo

# What the tests call beside Python: readers of ISOs and certificates, shells, and the
# machinery that builds and boots a root filesystem.
PACKAGES := busybox ca-certificates chromium cloud-init dash debian-archive-keyring dosfstools e2fsprogs fdisk \
	genisoimage git golang-cfssl iproute2 mmdebstrap mtools openssl netcat-openbsd qemu-system-x86 qemu-utils \
	shellcheck systemd systemd-container util-linux wget xfsprogs xorriso \
	python3-click python3-cryptography python3-jinja2 python3-jsonschema python3-pycdlib python3-yaml

.PHONY: help demo test test-lowest test-full lint bench packages clean
help: ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

demo: $(VENV)/ready ## from a fresh checkout to a seed, in out/demo
	@rm -rf $(DEMO) && mkdir -p out && cp -R examples/demo $(DEMO)
	@$(BIN)/gen-seed -C $(DEMO) ca init --name "demo authority"
	@$(BIN)/gen-seed -C $(DEMO) n7 -o $(DEMO)/n7.iso
	@echo
	@echo "$(DEMO)/n7.iso is the seed of the machine n7: attach it to its VM as a drive."
	@echo "$(DEMO)/fleet.yaml and $(DEMO)/nodes/n7.yaml are what it was made from."
	@echo "To read what is in it: $(BIN)/gen-seed -C $(DEMO) n7 --as user-data --identity placeholder"

test: $(VENV)/ready packages lint ## everything: linters, unit tests, machines that boot
	GEN_SEED_BOOT=$(BOOT) $(BIN)/$(PYTEST)

# What runs on a node is the same bytes with any version: the golden files are compared here too.
test-lowest: $(LOWEST)/ready ## the suite but for machines and onboard, with the lowest versions that are allowed
	$(LOWEST)/bin/$(PYTEST) -m "not boot" --ignore tests/test_packaging.py \
		--ignore-glob 'tests/test_change*' --ignore-glob 'tests/test_onboard*'

test-full: test test-lowest ## and everything that takes longer than a review should wait for
	GEN_SEED_BOOT=$(BOOT) HYPOTHESIS_PROFILE=full $(BIN)/$(PYTEST) tests/test_property.py \
		tests/test_build_cut.py tests/test_change_boot.py

bench: $(VENV)/ready ## what a command and a fleet cost, beside what they are made of
	$(BIN)/python bench/startup.py
	$(BIN)/python bench/validate.py
	$(BIN)/python bench/fleet.py 1000

lint: $(VENV)/ready ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# As root on Debian this installs what is missing; elsewhere it says what is left out.
packages:
	@if [ "$$(id -u)" = 0 ] && [ -e /etc/debian_version ]; then \
		missing=$$(dpkg-query -W -f '$${db:Status-Status} $${Package}\n' $(PACKAGES) 2>&1 \
			| grep -v '^installed ' || true); \
		if [ -n "$$missing" ]; then \
			apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install -y \
				--no-install-recommends $(PACKAGES) >/dev/null; \
		fi; \
	else \
		echo "not root on Debian: tests whose tools are missing, and those that boot machines, are left out"; \
	fi

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip --quiet --disable-pip-version-check install -c constraints.txt -e '.[dev]'
	@touch $@

$(LOWEST)/ready: pyproject.toml constraints.txt constraints-lowest.txt
	$(PYTHON) -m venv $(LOWEST)
	grep -viE '^(click|cryptography|jinja2|jsonschema|pycdlib|pyyaml)==' constraints.txt > $(LOWEST)/tools.txt
	$(LOWEST)/bin/pip --quiet --disable-pip-version-check install \
		-c $(LOWEST)/tools.txt -c constraints-lowest.txt -e '.[dev]'
	@touch $@

clean: ## takes away what the above have made, but for the cached root filesystems
	rm -rf $(VENV) $(LOWEST) $(DEMO) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
