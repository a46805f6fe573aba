"""What holds for the repository as a whole."""

import re
import subprocess
from pathlib import Path

import pytest

from lab import ROOT

TEXT = {".md", ".py", ".toml", ".txt", ".in", ".yaml", ".mod", ".sum", ".go", ".sh", "", ".mime"}

GUIDES = ["README.md", "CONTRIBUTING.md", "lab/rehearsal/README.md", "lab/kube/README.md", "lab/e2e/README.md"]
PAGES = [
    *GUIDES,
    "SECURITY.md",
    "docs/glossary.md",
    "docs/long-forms.md",
    "docs/preload.md",
    "docs/publish.md",
]


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def lines_with(pattern: str) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked()
        if path.suffix in TEXT
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if re.search(pattern, line)
    ]


def test_no_file_names_a_package_registry_s_host() -> None:
    hosts = (
        r"(p[y]pi\.org|pythonh[o]sted|(proxy|sum)\.gol[a]ng|npmj[s]\.(com|org)|cr[a]tes\.io|deb\.deb[i]an|mav[e]n\.org)"
    )

    assert lines_with(hosts) == []


def test_no_file_holds_a_path_of_somebody_s_machine() -> None:
    assert lines_with(r"(/h[o]me/[a-z]+/|/U[s]ers/|/r[o]ot/\.|/t[m]p/w/)") == []


def test_every_target_of_the_makefile_says_what_it_does() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE))

    assert targets == set(re.findall(r"^([a-z0-9.-]+):.*## ", makefile, re.MULTILINE))


def test_a_recipe_that_writes_into_build_makes_it_first() -> None:
    """A clean clone has no build folder: git keeps none."""
    recipes = (ROOT / "Makefile").read_text().splitlines()
    writing = [line for line in recipes if re.search(r"> *build/", line)]

    assert writing
    assert all("mkdir -p build" in line.partition(">")[0] for line in writing)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_links_and_names_only_what_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    named = re.findall(r"`((?:infra|workloads|ops|lab|tests|stacks|docs)/[\w./-]*)`", text)

    missing = [name for name in named if not (ROOT / name).exists()]
    missing += [link for link in links if not ((ROOT / page).parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", GUIDES)
def test_a_page_names_only_targets_that_the_makefile_has(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text()

    for target in re.findall(r"make ([a-z][a-z-]+)", (ROOT / page).read_text()):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE) or target in {"a", "up", "sure"}, target


def test_requirements_are_exact_and_hashed() -> None:
    for name in ("requirements", "requirements-dev"):
        wanted = {
            line.split("[")[0].split("==")[0].lower()
            for line in (ROOT / f"{name}.in").read_text().splitlines()
            if line and not line.startswith(("#", "-"))
        }
        locked = (ROOT / f"{name}.txt").read_text()
        pins = dict(re.findall(r"^([\w.-]+)==(\S+)", locked, re.MULTILINE))
        assert {one.replace("_", "-") for one in wanted} <= {one.replace("_", "-").lower() for one in pins}
        assert "--hash=sha256:" in locked
        assert not re.search(r"^[\w.-]+\s*(>=|~=|<)", locked, re.MULTILINE)


def test_nothing_large_is_kept() -> None:
    assert [str(path) for path in tracked() if path.stat().st_size > 512 * 1024] == []
