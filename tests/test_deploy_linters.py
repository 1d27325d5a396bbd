"""Scripts and Dockerfiles, read by the linters of their kind where these are installed (extra test-deploy)."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in (".ci", "deploy")
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and path.read_bytes().startswith((b"#!/bin/bash", b"#!/usr/bin/env bash"))
)
DOCKERFILES = ["deploy/docker/Dockerfile", "deploy/docker/Dockerfile.gpu"]


def _lint(words, tool):
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed; pip install 'dask-nlis[test-deploy]'")
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("script", SCRIPTS)
def test_shellcheck_finds_nothing(script):
    done = _lint(["shellcheck", "--severity=style", ROOT / script], "shellcheck")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", DOCKERFILES)
def test_hadolint_finds_nothing(file):
    done = _lint(["hadolint", "--failure-threshold=info", ROOT / file], "hadolint")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("tool", "name", "text", "finding"),
    [
        ("shellcheck", "script.sh", "#!/bin/bash\nrm -r $1/\n", "SC2086"),
        ("hadolint", "Dockerfile", "FROM python\nRUN cd /tmp && pip install numpy\n", "DL3042"),
    ],
)
def test_the_linters_do_find_faults(tool, name, text, finding, tmp_path):
    (tmp_path / name).write_text(text)
    done = _lint([tool, tmp_path / name], tool)
    assert done.returncode == 1
    assert finding in done.stdout
