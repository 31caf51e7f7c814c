"""The distributions that users install: what they hold, and that they work alone."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path, PurePosixPath
from runpy import run_path

import pytest

import transformer_blocks

ROOT = Path(__file__).parents[2]
BUILD = "from setuptools import build_meta as b; b.build_sdist('dist'), b.build_wheel('dist')"


def tracked_files() -> list[str]:
    """Return the files of the checkout, without those that only git reads."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("the files of the project are known in a git checkout only")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    return [name for name in files if name != ".gitignore"]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of both distributions, built from a copy of the checkout."""
    copy = tmp_path_factory.mktemp("copy")
    for name in tracked_files():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    subprocess.run([sys.executable, "-c", BUILD], cwd=copy, check=True, capture_output=True)
    return copy / "dist"


def test_the_source_distribution_holds_what_its_tests_need(distributions: Path) -> None:
    (path,) = distributions.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        found = {str(PurePosixPath(*PurePosixPath(each.name).parts[1:]))
                 for each in archive.getmembers() if each.isfile()}  # fmt: skip
    made = {"PKG-INFO", "setup.cfg"}
    metadata = {name for name in found if ".egg-info/" in name}
    assert "src/transformer_blocks.egg-info/PKG-INFO" in metadata  # else its version is unknown
    assert found - made - metadata == set(tracked_files())


def wheel(distributions: Path) -> tuple[list[str], Message]:
    """Return the names of the files of the wheel, and its metadata."""
    (path,) = distributions.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        return archive.namelist(), message_from_string(archive.read(metadata).decode())


def test_the_wheel_holds_the_library_alone_and_needs_torch_alone(distributions: Path) -> None:
    names, header = wheel(distributions)
    source = {name.removeprefix("src/") for name in tracked_files() if name.startswith("src/")}
    assert {name for name in names if ".dist-info/" not in name} == source
    assert header["Version"] == transformer_blocks.__version__
    required = [each for each in header.get_all("Requires-Dist") or [] if "extra ==" not in each]
    assert [each.split(">")[0] for each in required] == ["torch"]


def links(text: str) -> list[tuple[str, str, str]]:
    """Return the links and pictures: "!" for a picture, the label, and the address."""
    return re.findall(r"(!?)\[([^\]]*)\]\(([^)]*)\)", text)


def test_with_a_home_each_link_of_the_readme_leads_to_a_file_there() -> None:
    home = "https://host/owner/name"
    page = run_path(str(ROOT / "setup.py"))["description"](home)
    before = links((ROOT / "README.md").read_text("utf-8"))
    assert len(before) == len(links(page))
    for (picture, label, address), found in zip(before, links(page), strict=True):
        if not address.startswith("http"):
            kind = "raw" if picture else "blob"
            assert found == (picture, label, f"{home}/{kind}/HEAD/{address}")
            assert (ROOT / address).exists()


@pytest.mark.slow
def test_the_examples_of_the_readme_run_where_only_the_wheel_is_installed(
    distributions: Path, tmp_path: Path
) -> None:
    (wheel,) = distributions.glob("*.whl")
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), str(wheel)], check=True)
    shutil.copy(ROOT / "README.md", tmp_path)
    doctest = ["-m", "doctest", "-o", "NORMALIZE_WHITESPACE", "README.md"]
    found = subprocess.run(
        [str(python), *doctest], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
