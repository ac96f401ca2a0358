"""Which file system a folder lies on."""

from __future__ import annotations

from pathlib import Path

import pytest

from see_tune.mounts import network_file_system

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:35 / /home rw,relatime shared:9 - nfs4 files:/home rw,vers=4.2
41 40 8:2 / /home/me/scratch rw,relatime - xfs /dev/sdb1 rw
42 22 0:36 / /mnt/two\\040words rw - fuse.sshfs me@there:/ rw
43 22 0:37 / /stacked rw - nfs files:/a rw
44 22 8:3 / /stacked rw - ext4 /dev/sdc1 rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/runs", None),
        ("/home/me/runs", "nfs4"),
        ("/home/me/scratch/runs", None),
        ("/home/me/scratchy", "nfs4"),
        ("/mnt/two words/runs", "fuse.sshfs"),
        ("/stacked/runs", None),
    ],
)
def test_innermost_mount_decides(folder: str, kind: str | None) -> None:
    assert network_file_system(Path(folder), MOUNTS) == kind


def test_disk_of_this_machine_is_none(tmp_path: Path) -> None:
    assert network_file_system(tmp_path) is None
