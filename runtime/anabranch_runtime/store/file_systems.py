"""Whether a mapped file stays readable: a page that cannot be read ends the process."""

from pathlib import Path
from typing import Final

__all__ = ["is_steady"]

_UNSTEADY: Final = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "overlay",
        "smb3",
        "virtiofs",
    }
)


def is_steady(fd: int, root: Path = Path("/")) -> bool:
    """Return whether the file behind a descriptor lies on a disk of this machine or in memory.

    False for file systems over a network or in user space, for overlays of unknown ground, and
    where the kernel does not tell.

    Args:
        fd: of the file.
        root: of the file system `proc`.
    """
    try:
        info = (root / "proc/self/fdinfo" / str(fd)).read_text()
        mounts = (root / "proc/self/mountinfo").read_text()
    except OSError:  # not a Linux kernel, or hidden
        return False
    mount_id = next((line.split()[1] for line in info.splitlines() if "mnt_id" in line), None)
    for line in mounts.splitlines():
        mount, _, source = line.partition(" - ")
        if mount.split(" ", 1)[0] == mount_id:
            kind = source.split(" ", 1)[0]
            return kind not in _UNSTEADY and not kind.startswith("fuse")
    return False
