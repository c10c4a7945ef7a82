"""What the boot tests need, and what is said when it is missing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import browser
import pytest
from hypothesis import settings

from generator.prove import machine, nspawn, overlay, qemu
from generator.prove.rootfs import SUITES, rootfs

if TYPE_CHECKING:
    from pathlib import Path


# A review must not fail by chance: the same tries each time, and others in `make test-full`.
# Nor because the machine is busy: how long a try takes is never asserted.
settings.register_profile("review", derandomize=True, deadline=None)
settings.register_profile("full", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "review"))

# What the tests, and the processes that they start, would take from whoever runs them.
os.umask(0o022)
for name in ("GEN_SEED_PKI", "SOURCE_DATE_EPOCH"):
    os.environ.pop(name, None)


def pytest_sessionstart() -> None:
    if not nspawn.missing():
        overlay.sweep()


def pytest_runtest_setup(item: pytest.Item) -> None:
    needs = {"boot": nspawn.missing, "qemu": qemu.missing, "browser": browser.missing}
    reasons = [missing() for kind, missing in needs.items() if item.get_closest_marker(kind)]
    if reason := next(filter(None, reasons), None):
        # A test that must not be left out fails; one that may says so (see the summary).
        if os.environ.get("GEN_SEED_BOOT") == "required":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # one of several processes (pytest-xdist)
        session.config.workeroutput["booted"] = dict(machine.booted)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    machine.booted.update(getattr(node, "workeroutput", {}).get("booted", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    kinds = {kind: machine.booted[kind] for kind in ("nspawn", "qemu")}
    told = ", ".join(f"{kind} {number}" for kind, number in kinds.items())
    terminalreporter.write_line(f"machines booted: {sum(kinds.values())} ({told})")
    if reason := nspawn.missing():
        terminalreporter.write_line(f"left out: the tests that boot a machine ({reason})")
    elif reason := qemu.missing():
        terminalreporter.write_line(f"left out: the tests that boot in QEMU ({reason})")


@pytest.fixture(params=SUITES)
def suite(request: pytest.FixtureRequest) -> str:
    """Each Debian release that the boot tests run on."""
    return str(request.param)


@pytest.fixture
def tree(suite: str) -> Path:
    """The root filesystem of `suite`, built when it is first asked for."""
    return rootfs(suite)
