"""The machinery that boots a seed and sees the node join.

A machine is a systemd-nspawn container with real systemd and cloud-init; the release
server and the control plane are threads of this process, on loopback, which the guest
shares. `authority` is anything with ``.certificate`` and ``.key``; as root on Debian::

    from generator.prove.machine import Machine
    from generator.prove.rootfs import rootfs
    from generator.prove.servers import ControlPlane, ReleaseServer, agent_binary

    with ReleaseServer(authority, {"/llmgw": agent_binary()}) as release, \
            ControlPlane(authority) as plane:
        seed = {"meta-data": ..., "user-data": ...}  # names release.url and plane.url
        with Machine(rootfs("trixie"), seed) as machine:
            machine.boot()
            assert plane.wait_for_join(60).common_name == "n7"
            assert machine.wait_for_cloud_init().clean
            assert machine.stat("/etc/llmgw/agent.pem").st_mode & 0o777 == 0o644

`machine.kill()` and `machine.reboot()` go on with the same disk; ``Watch(machine.root,
secret)`` around the boot knows every mode that a file with the secret has had.
A seed on a real drive, under a kernel of its own, is for qemu.py.
"""
