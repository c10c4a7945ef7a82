"""The ISO on a real drive, read by a kernel of its own: what nspawn cannot show."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
import yaml
from cryptography import x509
from fleet import Fleet, write_fleet

from generator import authority
from generator.prove.qemu import VirtualMachine
from generator.prove.rootfs import rootfs
from generator.prove.servers import ControlPlane, Join, ReleaseServer, agent_binary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.boot, pytest.mark.qemu]

BINARY = agent_binary("v0.9.1")
DEVICES = {"virtio-blk": "/dev/vdb", "virtio-scsi-cd": "/dev/sr0"}
DEADLINE = 360  # seconds; a boot takes a minute on an idle machine
# An AHCI controller with an empty CD drive; the guest is to say whether its kernel has a driver.
SATA_CD = ("-device", "ich9-ahci,id=sata", "-device", "ide-cd,bus=sata.0")
AHCI = "0x010601"  # its PCI class
# What the guest's kernel makes of the drive, kept on the disk. PORT is open on this host, whose
# address in QEMU's own network is 10.0.2.2.
LOOK = """
set -eu
mkdir -p /root/seen/copy /root/drive
cd /root/seen
readlink -f /dev/disk/by-label/cidata >device
mount -o ro /dev/disk/by-label/cidata /root/drive
(cd /root/drive; stat -c '%a %u:%g %F %s %n' . *) >listing
cp /root/drive/* copy
umount /root/drive
mount -o ro,norock /dev/disk/by-label/cidata /root/drive
ls /root/drive >joliet
umount /root/drive
for d in /sys/bus/pci/devices/*; do
    driver=; [ ! -e $d/driver ] || driver=$(basename $(readlink $d/driver))
    echo $(cat $d/class) $driver
done >pci
if timeout 3 bash -c ': </dev/tcp/10.0.2.2/PORT'; then echo open; else echo closed; fi >outside
sync
"""
# And what is left of it once onboard is done, before cloud-init has ended.
LEFT = """
until [ -e /run/llmgw-onboard/verdict ]; do sleep 0.2; done
drive=$(cat /root/seen/device)
if dd if=$drive of=/dev/null count=1; then echo there; else echo gone; fi >/root/seen/left
sync
"""


@dataclass(frozen=True)
class Booted:
    """A machine that has booted from its drive, joined, and been shut down."""

    bus: str
    join: Join
    seed: dict[str, bytes]
    root: Path

    def seen(self, name: str) -> str:
        return (self.root / "root/seen" / name).read_text()


@pytest.fixture(scope="module", params=DEVICES)
def booted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Booted]:
    fleet = Fleet(tmp_path_factory.mktemp("site"))
    fleet("ca", "init")
    ca, _ = authority.load(fleet.pki, datetime.now(UTC))
    with ReleaseServer(ca, {"/llmgw": BINARY}) as release, ControlPlane(ca) as plane:
        write_fleet(fleet, plane.forwarded_url, f"{release.forwarded_url}/llmgw", BINARY)
        look = LOOK.replace("PORT", str(plane.server_port))
        # One host key: to make an RSA one takes long without acceleration.
        left = ["systemd-run", "--no-block", "sh", "-c", LEFT]
        config = {"runcmd": [["sh", "-c", look], left], "ssh_genkeytypes": ["ed25519"]}
        fleet.write(n7=json.dumps({"cloud_config": config}))
        iso = fleet.root / "n7.iso"
        iso.write_bytes(fleet("n7").stdout)
        with VirtualMachine(
            rootfs("bookworm", kernel=True),
            iso,
            bus=request.param,
            forward=[release.server_port, plane.server_port],
            arguments=SATA_CD,
        ) as machine:
            machine.boot()
            join = machine.wait_for("the join", lambda: plane.joins[:1], DEADLINE)[0]
            machine.wait_for_cloud_init(DEADLINE)
            machine.power_off()
            with machine.disk() as root:
                yield Booted(request.param, join, read_iso(iso), root)


def read_iso(iso: Path) -> dict[str, bytes]:
    """What another program than the one that wrote it reads."""
    folder = iso.with_suffix("")
    subprocess.run(
        ["xorriso", "-osirrox", "on", "-indev", iso, "-extract", "/", folder],
        check=True,
        capture_output=True,
    )
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_node_joins_with_the_certificate_from_its_drive(booted: Booted) -> None:
    written = yaml.safe_load(booted.seed["user-data"])["write_files"]
    (pem,) = (file["content"] for file in written if file["path"] == "/etc/llmgw/agent.pem")
    serial = x509.load_pem_x509_certificate(pem.encode()).serial_number
    assert (booted.join.common_name, booted.join.node_id) == ("n7", "n7")
    assert booted.join.serial == serial
    assert (booted.root / "usr/local/bin/llmgw").read_bytes() == BINARY


def test_cloud_init_finds_the_drive_by_its_label(booted: Booted) -> None:
    device = DEVICES[booted.bus]
    result = json.loads((booted.root / "var/lib/cloud/data/result.json").read_bytes())["v1"]
    assert f"[seed={device}]" in result["datasource"]
    log = (booted.root / "var/log/cloud-init-output.log").read_text()
    assert result["errors"] == [], log
    assert booted.seen("device") == f"{device}\n"


def test_i1_i2_x2_the_kernel_reads_names_modes_and_bytes(booted: Booted) -> None:
    names = sorted(booted.seed)
    assert {"meta-data", "user-data"} <= set(names)
    folder, *files = booted.seen("listing").splitlines()
    assert folder.split()[:3] == ["555", "0:0", "directory"]
    assert files == [f"400 0:0 regular file {len(booted.seed[n])} {n}" for n in names]
    copies = booted.root / "root/seen/copy"
    assert {path.name: path.read_bytes() for path in copies.iterdir()} == booted.seed
    assert booted.seen("joliet").split() == names


def test_x2_a_cd_is_ejected_and_a_disk_stays(booted: Booted) -> None:
    assert booted.seen("left") == {"virtio-blk": "there\n", "virtio-scsi-cd": "gone\n"}[booted.bus]


def test_i7_a_sata_cd_has_no_driver_in_a_cloud_kernel(booted: Booted) -> None:
    """Why docs/node.md names the buses; the day this fails, the page may be shortened."""
    drivers = booted.seen("pci").splitlines()
    assert [line for line in drivers if line.startswith(AHCI)] == [AHCI]
    assert sum(line.endswith(" virtio-pci") for line in drivers) >= 3


def test_the_guest_reaches_nothing_but_its_servers(booted: Booted) -> None:
    assert booted.seen("outside") == "closed\n"


# Waits until onboard says that it waits, keeps what it says, and sets the clock right.
LATE_CLOCK = """
while ! grep -q '"step": "clock"' /var/lib/llmgw-onboard/status.json; do sleep 1; done
cp /var/lib/llmgw-onboard/status.json /root/waiting.json
date -s @NOW
"""


def test_k1_k2_a_clock_before_the_certificate_is_waited_for(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet("ca", "init")
    ca, _ = authority.load(fleet.pki, datetime.now(UTC))
    with ReleaseServer(ca, {"/llmgw": BINARY}) as release, ControlPlane(ca) as plane:
        write_fleet(fleet, plane.forwarded_url, f"{release.forwarded_url}/llmgw", BINARY)
        mend = LATE_CLOCK.replace("NOW", str(int(datetime.now(UTC).timestamp())))
        command = ["systemd-run", "--no-block", "sh", "-c", mend]
        config = {"runcmd": [command], "ssh_genkeytypes": ["ed25519"]}
        fleet.write(n7=json.dumps({"cloud_config": config}))
        iso = fleet.root / "n7.iso"
        iso.write_bytes(fleet("n7").stdout)
        with VirtualMachine(
            rootfs("bookworm", kernel=True),
            iso,
            bus="virtio-blk",
            forward=[release.server_port, plane.server_port],
            # systemd takes the time of its own build where the clock is behind that.
            arguments=("-rtc", "base=1970-01-01"),
        ) as machine:
            machine.boot()
            machine.wait_for("the join", lambda: plane.joins[:1], DEADLINE)
            machine.power_off()
            with machine.disk() as root:
                told = json.loads((root / "root/waiting.json").read_bytes())
    assert (told["state"], told["step"]) == ("waiting", "clock")
    assert "and the node's certificate starts 20" in told["reason"]
