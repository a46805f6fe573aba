"""preload as a program: its command line, its termination message and report."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from preload import mode, program
from tests.workloads.support import SHARDS, SMALL_PIECES, WORKLOADS, preload, start, write


def test_it_runs_as_the_pod_runs_it_from_a_read_only_place_without_site_packages(tmp_path):
    write(tmp_path / "source")
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-S", "-m", "preload", "source", "destination"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(WORKLOADS), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == ""
    first, last = ended.stderr.splitlines()
    assert re.fullmatch(r"preload: 6 files, 13.20 kB to copy with 6 streams; (direct|buffered) writes: \S.*", first)
    assert last.startswith("preload: complete: 6 files, 13.20 kB copied in ")


def test_help_names_each_flag_of_the_contract(capsys):
    with pytest.raises(SystemExit) as ended:
        program.main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    flags = (
        "parallel write cache files verify max-bytes manifest-digest require-local-disk wait stay plan termination-log"
    )
    assert [flag for flag in flags.split() if f"--{flag}" not in said] == []


TERMINATION = {
    *("code", "message", "file", "model", "revision", "bytes", "copied_bytes", "resumed_bytes", "seconds"),
    *("verify_seconds", "retries", "gb_per_s", "streams", "write"),
}


def test_the_termination_message_and_the_report_have_the_fields_of_the_contract(tmp_path):
    source = write(tmp_path / "source")
    result = preload(source, tmp_path / "destination", "--parallel", "4", "--write", "buffered")
    assert set(result.termination) == TERMINATION
    assert (result.termination["streams"], result.termination["write"]) == (4, "buffered")
    assert result.termination["copied_bytes"] == result.termination["bytes"] == 13_195
    report = json.loads((tmp_path / "destination/.faststart/report.json").read_bytes())
    assert set(report) > TERMINATION
    assert (report["code"], report["files"], report["manifest_origin"]) == (0, 6, "scanned")


def test_a_failure_is_reported_in_the_destination_too_once_it_is_ours(tmp_path):
    source = write(tmp_path / "source")
    os.truncate(source / SHARDS[0], 100)
    result = preload(source, tmp_path / "destination")
    report = json.loads((tmp_path / "destination/.faststart/report.json").read_bytes())
    assert (report["code"], report["file"], report["message"]) == (4, SHARDS[0], result.message)


def test_many_streams_do_not_run_out_of_open_files_where_only_the_soft_limit_is_low(tmp_path):
    files: dict[str | bytes, bytes | None] = {f"d{n}/{n}.bin": bytes(9999) for n in range(120)}
    source = write(tmp_path / "source", {"config.json": b"{}"} | files)
    low = "import resource\nhard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
    low += f"resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))\n{SMALL_PIECES}"
    process = start(source, tmp_path / "destination", "--files", "all", "--parallel", "100", before=low)
    said = process.communicate(timeout=30)[1]
    assert process.returncode == 0, said


@pytest.mark.parametrize("way", ["direct", "buffered"])
def test_memory_stays_within_the_buffers_of_32_streams_whatever_the_size_of_a_file(tmp_path, way):
    source = write(tmp_path / "source", {"config.json": b"{}", "big.bin": b""})
    os.truncate(source / "big.bin", 600_000_000)
    measure = "import atexit\natexit.register(lambda: print(open('/proc/self/status').read()))"
    process = start(source, tmp_path / "destination", "--parallel", "32", "--write", way, before=measure)
    out, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert int(out.partition("VmHWM:")[2].split()[0]) * 1024 < 32 * mode.READ_BYTES_MAX + (48 << 20) < 512 << 20


@pytest.mark.parametrize("argument", ["\udcff", "a\udcffb", "\U0001f600\udc80"])
def test_an_argument_of_any_bytes_leaves_a_termination_message_that_is_json(tmp_path, argument):
    log = tmp_path / "log"
    assert program.main(["source", "destination", argument, "--termination-log", str(log)]) == 2
    assert json.loads(log.read_bytes())["code"] == 2
