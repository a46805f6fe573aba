"""Names in a model folder that are no part of any model: what downloads, file systems and desktops leave there."""

from __future__ import annotations

import re

MARKS = (
    rb"\.aria2(__temp)?|\.lftp-pget-status|\.ytdl"  # control files: aria2 (so hfd.sh), lftp, yt-dlp
    rb"|\.(part|partial|crdownload|download|opdownload|filepart|fdmdownload|downloading)"  # browsers, WinSCP, rclone
    rb"|\.part\.minio|_\.gstmp"  # mc, gsutil
    rb"|\.!(ut|qB|bt)|\.bc!|\.jc!|\.(td|xltd)(\.cfg)?"  # uTorrent, qBittorrent, BitComet, FlashGet, Xunlei
)
"""How names end that downloaders give to what they have not finished, whatever the case of the letters."""

_FOLDERS = {
    re.compile(rb"\.git|\.github|\.cache|\.huggingface|\._____temp"): "left by git or a download",
    re.compile(rb"lost\+found|\$RECYCLE\.BIN|System Volume Information|@eaDir|[#~.](snapshot|recycle)|\.Trash.*"): (
        "left by the file system"
    ),
    re.compile(rb"__MACOSX"): "left by macOS",
    re.compile(rb"__pycache__|_temporary"): "left by a program",
    re.compile(rb"\.(?!\.?$).*", re.DOTALL): "hidden",
}

_FILES = {
    re.compile(rb"\._.*|\.DS_Store", re.DOTALL): "left by macOS",
    re.compile(rb"\.nfs[0-9a-f]+|\.fuse_hidden.*", re.DOTALL): "left by the file system",
    re.compile(rb"\.(msc|mv|mdl)", re.DOTALL): "left by a download",
    re.compile(rb".*(%s|\.(incomplete|te?mp))" % MARKS, re.DOTALL | re.IGNORECASE): "left by a download",
    re.compile(rb".*(\.(lock|swp|swo|bak|orig)|~)|\.~lock\..*", re.DOTALL): "left by a program",
    re.compile(rb"Thumbs\.db|desktop\.ini|ehthumbs\.db", re.IGNORECASE): "left by Windows",
    re.compile(rb".*_\$folder\$|_SUCCESS|_started_\d+|_committed_\d+", re.DOTALL): "left by Hadoop",
}  # fmt: skip


def folder_reason(name: bytes) -> str | None:
    """Return why a folder of this name is no part of a model, None if it may be one."""
    return _reason(name, _FOLDERS)


def file_reason(name: bytes) -> str | None:
    """Return why a file of this name is no part of a model, None if it may be one."""
    return _reason(name, _FILES)


def _reason(name: bytes, rules: dict[re.Pattern[bytes], str]) -> str | None:
    return next((reason for pattern, reason in rules.items() if pattern.fullmatch(name)), None)
