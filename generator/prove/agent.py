#!/usr/bin/python3
"""Stands in for the llmgw binary in a guest: what is known of `llmgw agent`, and no more.

Not imported by gen-seed: it is served to the guest byte for byte, as the release, and runs
on the guest's own python3 (Debian 11 has 3.9) with the yaml that cloud-init needs.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import ssl
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path
from typing import Any

import yaml

VERSION = "v0.0.0"
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


def main() -> None:
    """Do as the command line says."""
    parser = argparse.ArgumentParser(prog="llmgw")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("version")
    commands.add_parser("agent").add_argument("--config", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.command == "version":
        sys.stdout.write(f"llmgw {VERSION} (stand-in)\n")
        return
    try:
        config = yaml.safe_load(arguments.config.read_text(encoding="utf-8"))
        plane = Plane(config)
        pace = [
            seconds(config[k]) for k in ("reconnect_base", "reconnect_max", "heartbeat_interval")
        ]
    except (OSError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        sys.exit(f"{arguments.config}: {error!r}")
    if "supervisor" in config:
        launch(Path(config["supervisor"]["work_dir"]) / "engine.pid")
    run(plane, config, *pace)


def launch(record: Path) -> None:
    """Start what stands for an engine, or adopt the one that an earlier agent has started."""
    record.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.kill(int(record.read_text("utf-8")), 0)
    except (OSError, ValueError):
        engine = subprocess.Popen(["sleep", "infinity"], start_new_session=True)
        record.write_text(str(engine.pid), "utf-8")


def run(plane: Plane, config: dict[str, Any], base: float, most: float, heartbeat: float) -> None:
    """Join, then send heartbeats for ever; after a failure join again, ever more slowly."""
    wait = base
    while True:
        try:
            plane.post("/join", {"node_id": config["node_id"], "config": config})
            say("joined")
            wait = base
            while True:
                time.sleep(heartbeat)
                plane.post("/heartbeat", {"node_id": config["node_id"]})
        except (OSError, http.client.HTTPException) as error:
            say(f"{error}; next try in {wait} s")
            time.sleep(wait)
            wait = min(wait * 2, most)


class Plane:
    """The control plane, reached as `server` and `tls` of the configuration say."""

    def __init__(self, config: dict[str, Any]) -> None:
        tls = config["tls"]
        self.context = ssl.create_default_context(cafile=tls["ca"])
        # Go is not as strict about an authority's extensions as Python is from 3.13 on.
        self.context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self.context.load_cert_chain(tls["cert"], tls["key"])
        server = urllib.parse.urlsplit(config["server"])
        if server.scheme != "https" or not server.hostname:
            raise ValueError(f"server {config['server']!r} is not an https address")
        self.host, self.port = server.hostname, server.port or 443

    def post(self, path: str, message: dict[str, Any]) -> None:
        """Send a message; OSError when it does not arrive or is refused."""
        connection = http.client.HTTPSConnection(
            self.host, self.port, timeout=10, context=self.context
        )
        try:
            connection.request("POST", path, json.dumps(message))
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise OSError(f"refused: {text}")


def seconds(duration: str) -> float:
    """Return the length of a duration in Go's form, such as 1m30s."""
    if not re.fullmatch(r"(\d+(\.\d+)?(ms|s|m|h))+", duration):
        raise ValueError(f"{duration!r} is not a duration")
    return sum(float(n) * _UNITS[u] for n, u in re.findall(r"([\d.]+)(ms|s|m|h)", duration))


def say(text: str) -> None:
    """Tell the journal."""
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main()
