"""Engines that take our flags, that do not, and that do not say."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from fleet import gen_seed
from hypothesis import given, settings
from hypothesis import strategies as st
from images import disk_of, needs_disks

from generator import engine_ask
from generator.engine_check import Verdict, engines, judge, known, wanted
from generator.problem import Refused
from generator.spec import Engines, Flags, LlamaCpp, Vllm

HELP = Path(__file__).parent / "help"
TEXTS = {
    "llamacpp": (HELP / "llama-server-11669.txt").read_text("utf-8"),
    "vllm": (HELP / "vllm-0.32.0.txt").read_text("utf-8"),
    "sglang": (HELP / "sglang-0.5.23.txt").read_text("utf-8"),
}
GROUPS = (HELP / "vllm-0.32.0-groups.txt").read_text("utf-8")


def judged(name: str, text: str, *, whole: bool = False, launch_mode: str = "mp") -> Verdict:
    engine = engines()[name]
    return judge(engine, wanted(engine, Flags(), launch_mode), text, "help.txt", whole=whole)


def lacking(verdict: Verdict) -> list[str]:
    return [flag.names[0] for flag, name in verdict.found if not name]


def program(folder: Path, script: str, name: str = "llama-server") -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def asked(path: Path, *, timeout: float = 60, name: str = "llamacpp") -> Verdict:
    return engine_ask.ask(engines()[name], str(path), Engines(), timeout)


# ---- what a text says ------------------------------------------------------------------


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("whole", [True, False])
def test_the_engines_of_today_take_all_flags(name: str, *, whole: bool) -> None:
    verdict = judged(name, TEXTS[name], whole=whole)
    assert verdict.state == "accepted"
    assert verdict.problems == ()
    assert len(verdict.found) == len(engines()[name].flags)


def test_of_llamacpp_there_are_seven_as_llmgw_says() -> None:
    assert len(engines()["llamacpp"].flags) == 7


def test_every_flag_has_its_reason_and_source() -> None:
    for engine in engines().values():
        for flag in engine.flags:
            assert flag.why, flag
            assert flag.source, flag
            assert known(f"{flag.names[0]} X  text") == {flag.names[0]}


@pytest.mark.parametrize(
    ("name", "old", "new", "gone"),
    [
        ("llamacpp", "-c,    --ctx-size N ", "--context-size N     ", "--ctx-size"),
        ("llamacpp", "--port PORT ", "--port-range A-B", "--port"),
        ("llamacpp", "--host HOST", "--rpc-host HOST", "--host"),
        ("vllm", "  --host HOST ", "  --bind HOST ", "--host"),
        ("vllm", "  --nnodes NNODES, -n NNODES", "  --nodes NODES", "--nnodes"),
        ("sglang", "  --nnodes NNODES", "  --nnodes-per NNODES", "--nnodes"),
    ],
)
def test_a_renamed_flag_and_a_longer_one(name: str, old: str, new: str, gone: str) -> None:
    assert old in TEXTS[name]
    text = TEXTS[name].replace(old, new)
    if name == "sglang":  # its usage names every flag as well
        text = text.replace("[--nnodes NNODES]", "[--nnodes-per NNODES]")
    for whole in (True, False):
        verdict = judged(name, text, whole=whole)
        assert verdict.state == "missing"
        assert lacking(verdict) == [gone]
        (problem,) = verdict.problems
        assert problem.severity == "error"
        assert f"does not know {gone}" in problem.message


def test_a_flag_that_only_prose_names_is_gone() -> None:
    text = TEXTS["llamacpp"].replace("--port PORT", "--listen N ")
    prose = "                                        --port has become --listen\n"
    assert lacking(judged("llamacpp", text + prose, whole=True)) == ["--port"]


def test_a_missing_flag_is_told_with_what_is_near() -> None:
    text = TEXTS["llamacpp"].replace("-np,   --parallel N", "--parallels N      ")
    (problem,) = judged("llamacpp", text, whole=True).problems
    assert "--parallels" in problem.hint


def test_another_spelling_will_do_and_is_told() -> None:
    text = TEXTS["llamacpp"].replace("--gpu-layers, --n-gpu-layers N", "--gpu-layers N")
    verdict = judged("llamacpp", text)
    assert verdict.state == "accepted"
    assert {flag.names[0]: name for flag, name in verdict.found}["--n-gpu-layers"] == "--gpu-layers"
    assert [problem.severity for problem in verdict.problems] == ["warning"]


@pytest.mark.parametrize("name", TEXTS)
@settings(deadline=None)
@given(share=st.floats(0, 1, exclude_max=True), lines=st.booleans())
def test_a_text_that_is_cut_anywhere_lacks_no_flag(name: str, *, share: float, lines: bool) -> None:
    whole = TEXTS[name]
    text = whole[: int(len(whole) * share)]
    if lines:
        text = text[: text.rfind("\n") + 1]
    assert judged(name, text).state in ("accepted", "truncated", "unknown")


def test_a_cut_text_is_a_warning() -> None:
    # As llmgw's own first run went: 400 lines of llama.cpp's.
    text = "".join(TEXTS["llamacpp"].splitlines(keepends=True)[:400])
    verdict = judged("llamacpp", text)
    assert verdict.state == "truncated"
    assert verdict.found == ()
    assert [problem.severity for problem in verdict.problems] == ["warning"]


@pytest.mark.parametrize("text", ["", "usage: mv [-f] A B\n\n  -f  force\n", GROUPS, "<html>\n"])
def test_what_is_no_help_text_of_the_engine(text: str) -> None:
    verdict = judged("vllm", text, whole=True)
    assert verdict.state == "unknown"
    assert verdict.found == ()


def test_colours_and_tabs_are_layout() -> None:
    assert known("\x1b[1m  -a, --alias\x1b[0m\tthe --name\n\t--tab  x\n") == {
        *("-a", "--alias", "--tab")
    }


@pytest.mark.parametrize(
    "dressed",
    [
        "\x1b(B\x1b[m{}\x1b[K",
        "\x1b[1;38:2:1:2:3m{}\x1b[?25h",
        "\x1b]8;;https://h/#a\x1b\\{}\x1b]8;;\x07",
    ],
)
def test_whatever_a_terminal_is_told_is_no_text(dressed: str) -> None:
    assert known(dressed.format("--alias") + " NAME  the name\n") == {"--alias"}


@pytest.mark.parametrize(
    ("flags", "mode", "names"),
    [
        (Flags(replace=("--port", "--x")), "mp", ["--port", "--x"]),
        (Flags(replace=("-tp",), add=("--y",)), "ray", ["-tp", "--y"]),
    ],
)
def test_a_spec_replaces_flags(flags: Flags, mode: str, names: list[str]) -> None:
    assert [flag.names[0] for flag in wanted(engines()["vllm"], flags, mode)] == names


def test_the_spelling_of_a_spec_is_the_one_that_is_given() -> None:
    text = TEXTS["llamacpp"].replace("-c,    --ctx-size", "--ctx-size")
    assert text != TEXTS["llamacpp"]
    flags = wanted(engines()["llamacpp"], Flags(replace=("-c", "--port")))
    verdict = judge(engines()["llamacpp"], flags, text, "x", whole=True)
    assert [p.message for p in verdict.problems] == ["llama.cpp knows --ctx-size and not -c"]


def test_a_spec_adds_flags_and_ray_needs_less() -> None:
    engine = engines()["vllm"]
    ray = [flag.names[0] for flag in wanted(engine, Flags(add=("--x", "--port")), "ray")]
    every = [flag.names[0] for flag in engine.flags]
    assert ray == [*(name for name in every if name not in WITHOUT_RAY), "--x"]
    assert set(WITHOUT_RAY) < set(every)


WITHOUT_RAY = ("--nnodes", "--node-rank", "--master-addr", "--master-port", "--headless")


# ---- an engine that is asked -----------------------------------------------------------


def test_help_on_stderr_and_with_a_status(tmp_path: Path) -> None:
    path = program(tmp_path, f"cat {HELP}/llama-server-11669.txt >&2; exit 1")
    verdict = asked(path)
    assert verdict.state == "accepted"
    assert verdict.asked == f"{path} --help"


def test_a_flag_that_is_gone(tmp_path: Path) -> None:
    path = program(tmp_path, f"sed 's/^--port PORT/--port-range A/' {HELP}/llama-server-11669.txt")
    verdict = asked(path)
    assert verdict.state == "missing"
    assert lacking(verdict) == ["--port"]


def test_what_ended_well_is_whole(tmp_path: Path) -> None:
    verdict = asked(program(tmp_path, f"head -n 400 {HELP}/llama-server-11669.txt"))
    assert lacking(verdict) == ["--alias", "--host", "--port", "--parallel"]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("kill -SEGV $$", "killed by SIGSEGV"),
        ("kill -35 $$", "killed by signal 35"),
        (r"printf '\033]0;title\007no GPU\n'; exit 3", "exit status 3:  ]0;title no GPU"),
        (f"head -n 30 {HELP}/llama-server-11669.txt; kill -ABRT $$", "killed by SIGABRT"),
        ("echo 'libcuda.so.1: cannot open' >&2; exit 127", "127: libcuda.so.1: cannot open"),
        ("yes porting", "bytes of output"),
        ("true", "no help text of llama.cpp"),
    ],
)
def test_a_crash_is_told_and_lacks_no_flag(tmp_path: Path, script: str, said: str) -> None:
    verdict = asked(program(tmp_path, script))
    assert verdict.state == "unknown"
    assert verdict.found == ()
    assert said in verdict.problems[0].message


def test_a_hang_is_killed_with_its_children(tmp_path: Path) -> None:
    path = program(tmp_path, f"sleep 600 & echo $! >{tmp_path}/child\ncat; wait")
    verdict = asked(path, timeout=5)
    assert verdict.state == "unknown"
    assert "no answer within 5 seconds" in verdict.problems[0].message
    child = (tmp_path / "child").read_text().strip()
    deadline = time.monotonic() + 60
    while lives(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not lives(child)


def lives(process: str) -> bool:
    """Tell whether a process runs; it may end, and be waited for, while we look."""
    with contextlib.suppress(OSError):
        return " Z " not in Path(f"/proc/{process}/stat").read_text()
    return False


def test_it_gets_no_stdin_and_nothing_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELEASE_TOKEN", "secret")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    path = program(tmp_path, f"cat >{tmp_path}/stdin; env >{tmp_path}/env; pwd >{tmp_path}/pwd")
    asked(path)
    assert (tmp_path / "stdin").read_bytes() == b""
    given = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    expected = {"PATH", "LC_ALL", "TERM", "NO_COLOR", "COLUMNS", "PYTHONDONTWRITEBYTECODE"}
    assert given.keys() - {"PWD", "OLDPWD", "SHLVL", "_"} == expected | {"HOME", "TMPDIR"}
    assert not Path(given["HOME"]).exists()


def test_older_versions_are_asked_in_other_words(tmp_path: Path) -> None:
    script = f"""\
[ "$2" = --help ] || {{ echo "usage: vllm serve [-h] [--port P]"; echo "error: 'all'"; exit 2; }}
cat {HELP}/vllm-0.32.0.txt"""
    verdict = asked(program(tmp_path, script, "vllm"), name="vllm")
    assert verdict.state == "accepted"
    assert verdict.asked.endswith("vllm serve --help")


# ---- an engine in another system's tree -------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A root filesystem with a shell, cat, and what these need."""
    if os.geteuid():
        pytest.skip("chroot takes root")
    if subprocess.run(
        ["unshare", "--mount", "--pid", "--net", "--fork", "true"], check=False
    ).returncode:
        pytest.skip("no namespaces here")
    root = tmp_path / "tree"
    for name in ("sh", "cat", "id", "setsid"):
        path = Path(shutil.which(name) or "")
        libraries = subprocess.check_output(["ldd", path], text=True)
        copied = [word for word in libraries.split() if word.startswith("/")]
        for file in (path, *map(Path, copied)):
            target = root / (f"bin/{name}" if file == path else str(file).lstrip("/"))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    for folder in ("dev", "proc", "tmp", "opt/llama.cpp", "usr/bin"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    shutil.copy(HELP / "llama-server-11669.txt", root / "opt/llama.cpp/help.txt")
    return root


def test_a_tree_is_asked_within_itself_as_nobody(tree: Path) -> None:
    script = """exec >&2
[ -e /proc/self ] && [ ! -e /etc ] && [ $$ -lt 10 ] && : >/tmp/left || exit 3
cat /opt/llama.cpp/help.txt"""
    program(tree / "opt/llama.cpp", script)
    specs = Engines(llamacpp=LlamaCpp(bin="/opt/llama.cpp/llama-server"))
    before = sorted(tree.rglob("*"))
    (verdict,) = engine_ask.examine(tree, specs, 60)
    assert verdict.state == "accepted"
    assert verdict.asked == "/opt/llama.cpp/llama-server --help"
    assert sorted(tree.rglob("*")) == before


def test_in_a_tree_it_is_found_on_its_path(tree: Path) -> None:
    program(tree / "usr/bin", "[ $(id -u) = 65534 ] && cat /opt/llama.cpp/help.txt")
    (verdict,) = engine_ask.examine(tree, Engines(), 60)
    assert (verdict.asked, verdict.state) == ("/usr/bin/llama-server --help", "accepted")


def test_what_the_spec_names_must_be_in_the_tree(tree: Path) -> None:
    (verdict,) = engine_ask.examine(tree, Engines(vllm=Vllm(bin="/opt/vllm/bin/vllm")), 60)
    assert verdict.state == "unknown"
    assert "/opt/vllm/bin/vllm" in verdict.problems[0].message
    assert "No such file" in verdict.problems[0].message


@needs_disks
def test_an_image_is_asked_and_left_as_it_is(tree: Path) -> None:
    (tree / "etc").mkdir()
    (tree / "etc/os-release").write_text("ID=debian\n")
    program(tree / "usr/bin", "[ $(id -u) = 65534 ] && cat /opt/llama.cpp/help.txt")
    disk = disk_of(tree, tree.parent / "disk.raw")
    before = disk.read_bytes()
    done = gen_seed("engine-check", str(disk), cwd=tree.parent)
    assert done.stdout == b"llamacpp: /usr/bin/llama-server --help: 7 of 7 flags known\n"
    assert disk.read_bytes() == before
    assert sorted(path.name for path in tree.parent.iterdir()) == [disk.name, "tree"]
    none = gen_seed("engine-check", "--engine", "vllm", str(disk), cwd=tree.parent, check=False)
    assert f"there is no vLLM in {disk}" in none.stderr.decode()


def test_a_tree_without_an_engine(tree: Path) -> None:
    done = gen_seed("engine-check", "tree", cwd=tree.parent, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"error: there is no engine in tree" in done.stderr


def test_a_folder_that_is_no_root_filesystem_is_asked_nothing(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "fleet.yaml").write_text(
        "schema: 1\ndefaults: {engines: {vllm: {bin: /opt/vllm/bin/vllm}}}\n", encoding="utf-8"
    )
    done = gen_seed("engine-check", "tree", cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"error: tree is no root filesystem: it has no /bin/sh\n"


def test_a_hang_in_a_tree_takes_its_children_along(tree: Path) -> None:
    marker = f"engine-check-{os.getpid()}"
    program(tree / "usr/bin", f"setsid sh -c 'while :; do :; done' {marker} & wait")
    (verdict,) = engine_ask.examine(tree, Engines(), 2)
    assert "no answer within 2 seconds" in verdict.problems[0].message
    deadline = time.monotonic() + 60
    while marked(marker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert marked(marker) == []


def marked(word: str) -> list[Path]:
    """Return the processes that have a word among their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word in path.read_text("utf-8", "replace").split("\0"):
                found.append(path)
    return found


def test_a_tree_takes_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Refused) as caught:
        engine_ask.examine(tmp_path, Engines(vllm=Vllm(bin="/opt/vllm/bin/vllm")), 60)
    assert "takes root" in caught.value.problems[0].message


# ---- the command -------------------------------------------------------------------------


def test_the_command_reads_a_text_or_stdin(tmp_path: Path) -> None:
    text = HELP / "sglang-0.5.23.txt"
    done = gen_seed("engine-check", str(text), cwd=tmp_path)
    assert done.stdout.decode() == f"sglang: {text}: 11 of 11 flags known\n"
    assert done.stderr == b""
    piped = gen_seed(
        "engine-check", "--engine", "sglang", "-", cwd=tmp_path, stdin=text.read_bytes()
    )
    assert piped.stdout == b"sglang: standard input: 11 of 11 flags known\n"


def test_the_command_fails_with_every_missing_flag(tmp_path: Path) -> None:
    text = TEXTS["vllm"].replace("  --host HOST", "  --h").replace("  --port PORT", "  --p")
    (tmp_path / "vllm.txt").write_text(text, encoding="utf-8")
    done = gen_seed("engine-check", "vllm.txt", "--format", "json", cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert done.stderr.count(b"error: vllm.txt: vLLM does not know --") == 2
    (row,) = json.loads(done.stdout)["engines"]
    assert (row["engine"], row["asked"], row["state"]) == ("vllm", "vllm.txt", "missing")
    assert [f["flag"] for f in row["flags"] if not f["known_as"]] == ["--host", "--port"]
    assert [p["severity"] for p in row["problems"]] == ["error", "error"]


def test_a_warning_fails_only_when_strict(tmp_path: Path) -> None:
    (tmp_path / "vllm.txt").write_text(TEXTS["vllm"][:70000], encoding="utf-8")
    assert b"looks truncated" in gen_seed("engine-check", "vllm.txt", cwd=tmp_path).stderr
    strict = gen_seed("engine-check", "--strict", "vllm.txt", cwd=tmp_path, check=False)
    assert strict.returncode == 1


def test_the_command_runs_a_program_with_the_nodes_flags(tmp_path: Path) -> None:
    gen_seed("init", ".", "--no-ca", cwd=tmp_path)
    path = tmp_path / "nodes/n7.yaml"
    path.write_text(
        f"{path.read_text()}\nengines: {{llamacpp: {{flags: {{add: [--gone]}}}}}}\n",
        encoding="utf-8",
    )
    program(tmp_path, f"cat {HELP}/llama-server-11669.txt")
    gen_seed("engine-check", "llama-server", cwd=tmp_path)
    done = gen_seed("engine-check", "llama-server", "--node", "n7", cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert b"does not know --gone" in done.stderr
    assert b"7 of 8 flags known" in done.stdout


@pytest.mark.parametrize(
    ("name", "data", "status", "said"),
    [
        ("help.txt", b"x\n", 2, b"which engine is it? --engine"),
        ("llama-server.img", b"\0" * 512, 1, b"is no program, no disk image and no text"),
        ("vllm", b"\x7fELF\0", 1, b"cannot be run: permission denied"),
        ("empty/x", b"", 1, b"error: empty is no root filesystem: it has no /bin/sh"),
    ],
)
def test_what_cannot_be_asked(
    tmp_path: Path, name: str, data: bytes, status: int, said: bytes
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(data)
    given = name.partition("/")[0]
    done = gen_seed("engine-check", given, cwd=tmp_path, check=False)
    assert (done.returncode, said in done.stderr) == (status, True), done.stderr


def test_a_program_on_the_path_is_named_by_its_path(tmp_path: Path) -> None:
    done = gen_seed("engine-check", "env", cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert done.stderr.decode() == (
        "error: there is no env in this folder\n"
        f"  hint: a program is named by its path: {shutil.which('env')}\n"
    )


def test_a_file_that_no_machine_runs(tmp_path: Path) -> None:
    (tmp_path / "vllm").write_bytes(b"\x7fELF\0")
    (tmp_path / "vllm").chmod(0o755)
    done = gen_seed("engine-check", "vllm", cwd=tmp_path, check=False)
    assert b"cannot be run: exec format error" in done.stderr
