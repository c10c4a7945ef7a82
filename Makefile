# Two commands matter: `make demo` shows what gen-seed does, `make test` runs everything.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# auto: the boot tests run where they can; required: a missing piece of theirs is a failure.
BOOT ?= auto
DEMO := out/demo

# What the tests call beside Python: readers of ISOs and certificates, shells, and the
# machinery that builds and boots a root filesystem.
PACKAGES := busybox ca-certificates cloud-init dash debian-archive-keyring dosfstools genisoimage git \
	iproute2 mmdebstrap mtools openssl shellcheck strace systemd systemd-container util-linux xorriso

.PHONY: help demo test lint packages clean
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
	GEN_SEED_BOOT=$(BOOT) $(BIN)/pytest

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
			apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
				--no-install-recommends $(PACKAGES) >/dev/null; \
		fi; \
	else \
		echo "not root on Debian: tests whose tools are missing, and those that boot machines, are left out"; \
	fi

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip --quiet --disable-pip-version-check install -c constraints.txt -e '.[dev]'
	@touch $@

clean: ## takes away what the above have made, but for the cached root filesystems
	rm -rf $(VENV) $(DEMO) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
