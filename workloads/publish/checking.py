"""`--check`: all that is wrong with a folder, and what vLLM would do with it."""

from __future__ import annotations

import os

from modelfolder.manifest import Manifest
from modelfolder.source import Source, look, read_manifest
from podkit.display import size
from podkit.errors import Exit, FaststartError
from podkit.lines import tell_many
from podkit.processor import processors
from podkit.progress import Progress
from podkit.surroundings import Surroundings
from publish.options import Check
from publish.report import PublishReport, telling
from publish.sealing import Hashing
from publish.verdict import Finding, judge


def check(asked: Check, around: Surroundings, report: PublishReport) -> None:
    """Print what is wrong with a folder, one line each, and a summary.

    Args:
        asked: the folder.
        around: the process.
        report: takes the figures, the closing message and the code of the worst finding.

    Raises:
        FaststartError: 2, 6, 7, 8 or 9, it cannot be looked at; 143, SIGTERM.
    """
    root = os.fsencode(asked.folder)
    findings: list[Finding] = []
    manifest: Manifest | None = None
    try:
        manifest = read_manifest(root, around.patience)
    except FaststartError as error:
        if error.code != Exit.DAMAGED:
            raise
        findings.append(Finding(error.file, error.message, error.code))
    source = _look(root, asked, manifest, around)
    report.total_bytes = source.total_bytes
    if manifest:
        report.model, report.revision = manifest.model, manifest.revision
        with report.verifying():
            findings += _against(manifest, source, around)
    differs = any(finding.code is not None for finding in findings)
    verdict = judge(source, around.patience, tokenizer=asked.tokenizer == "required")
    findings += verdict.findings
    pickle = "is a Python pickle, or cannot be told from one: whoever wrote it can run code in the server"
    findings += (Finding(path, pickle, None) for path in verdict.pickles)
    findings.sort(key=lambda finding: finding.code is None)
    told = [f"{'warning' if finding.code is None else 'wrong':8}{finding}" for finding in findings]
    tell_many(told, around.print, "findings")
    seal = f"sealed, {manifest.digest}" if manifest else "not sealed"
    summary = verdict.summary
    if differs:
        summary = "it is not what was sealed, so that vLLM may start and answer wrongly"
    report.message = f"{len(source.files)} files, {size(source.total_bytes)}, {seal}; {summary}"
    codes = [finding.code for finding in findings if finding.code is not None]
    if codes:
        report.code = Exit.DAMAGED if Exit.DAMAGED in codes else codes[0]


def _look(root: bytes, asked: Check, manifest: Manifest | None, around: Surroundings) -> Source:
    """Look at what was asked for; else at what was sealed, and what its patterns choose; else at what vLLM opens."""
    sealed = {listed.path for listed in manifest.files} if manifest else set[bytes]()
    patterns = asked.files or (manifest.chosen if manifest else None) or ("auto",)
    try:
        return look(root, patterns, around.patience, by_manifest=False, besides=sealed)
    except FaststartError as error:
        if error.code != Exit.USAGE or asked.files:
            raise
        # What its patterns named is gone.
        return look(root, ("auto",), around.patience, by_manifest=False, besides=sealed)


def _against(manifest: Manifest, source: Source, around: Surroundings) -> list[Finding]:
    """Return how a folder differs from its manifest; reads each byte of it."""
    there = {file.path: file for file in source.files}
    findings = []
    for listed in manifest.files:
        file = there.get(listed.path)
        if file is None:
            findings.append(Finding(listed.path, "is in the manifest and not in the folder", Exit.DAMAGED))
        elif file.size != listed.size:
            message = f"has {file.size} bytes, the manifest says {listed.size}"
            findings.append(Finding(listed.path, message, Exit.DAMAGED))
    sizes = {listed.path: listed.size for listed in manifest.files}
    late = "is not in the manifest: it came after the folder was sealed"
    findings += (Finding(path, late, None) for path in sorted(there.keys() - sizes.keys()))
    hashed = {listed.path: listed for listed in manifest.files if listed.blocks}
    same = [file for path, file in sorted(there.items()) if path in hashed and sizes[path] == file.size]
    block_bytes = {path: listed.block_bytes for path, listed in hashed.items()}
    hashing = Hashing(same, (), processors(), around.patience, block_bytes)
    progress = Progress(sum(file.size for file in same), around.say, around.draw, done="hashed")
    with telling(progress, lambda: hashing.done, processors()):
        hashes = hashing.run()
    for file in same:
        listed = hashed[file.path]
        pairs = zip(hashes[file.path].blocks, listed.blocks, strict=True)
        wrong = [number for number, (one, other) in enumerate(pairs) if one != other]
        if wrong:
            at = wrong[0] * listed.block_bytes
            message = f"{len(wrong)} of {len(listed.blocks)} blocks do not have their hash, the first at byte {at}"
            findings.append(Finding(file.path, message, Exit.DAMAGED))
    return findings
