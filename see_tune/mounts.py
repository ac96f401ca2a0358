"""On which kind of file system a folder lies: some promises of a local disk do not hold between hosts."""

from __future__ import annotations

from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
# fmt: off
_NETWORK = frozenset((
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "lustre", "gpfs", "ceph", "glusterfs", "beegfs", "afs", "pvfs2", "orangefs",
    "wekafs", "fuse.sshfs", "fuse.ceph-fuse", "fuse.glusterfs", "fuse.juicefs", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse",
    "fuse.mfs", "fuse.beegfs",
))
# fmt: on


def network_file_system(folder: Path, mounts: str | None = None) -> str | None:
    """The name of the network file system that `folder` lies on (``nfs4``); None on a disk of this machine.

    folder: absolute; need not exist yet.
    mounts: what /proc/self/mountinfo says; where there is no such file nothing is known, and None returned.
    """
    if mounts is None:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace") if _MOUNTS.is_file() else ""
    found, kind = Path("/"), ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = Path(_unescaped(before.split(" ")[4]))
        if folder.is_relative_to(point) and len(point.parts) >= len(found.parts):  # the last mount on a point hides the others
            found, kind = point, after.split(" ")[0]
    return kind if kind in _NETWORK else None


def _unescaped(text: str) -> str:
    """mountinfo writes blanks and the like in octal: ``\\040``."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
