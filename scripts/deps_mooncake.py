# SPDX-License-Identifier: Apache-2.0
"""Fetches Mooncake's two servers, mooncake_master and mooncake_client, into the cache.

They come in a wheel from the Python package index, pinned by SHA-256, of which only the two programs
and their bundled libraries are unpacked:

  <cache>/mooncake/<version>-<arch>/   mooncake_master, mooncake_client and lib*.so

Run them with LD_LIBRARY_PATH set to that folder. Libraries that the system lacks (libibverbs is not on
most machines, and no RDMA device is needed) are added from Debian packages where apt-get is there;
elsewhere they have to be installed. Nothing outside the cache is changed.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import deps

MOONCAKE = ("mooncake-transfer-engine-non-cuda", "0.3.13.post1")
HASHES = {
    "x86_64": "ca9f668a04ffe648b250fda28b97d0a7da149cb110dec5cf3d166a9e68afc940",
    "aarch64": "04796829bebb1b34f84460e9ab1a630162a20d848819514463f6ca839a871138",
}
PROGRAMS = ("mooncake_master", "mooncake_client")

# The Debian packages of the libraries that may be taken into the cache: small ones, whose own needs
# are in this list or in libc.
PACKAGES = {
    "libibverbs.so.1": "libibverbs1",
    "libnl-3.so.200": "libnl-3-200",
    "libnl-route-3.so.200": "libnl-route-3-200",
    "libnuma.so.1": "libnuma1",
}
HINT = "Debian: apt install libcurl4 libibverbs1 libnuma1; Fedora: dnf install libcurl libibverbs numactl-libs"


def member(path):
    """Names the file that a member of the wheel becomes, or None to leave it out."""
    folder, base = os.path.split(path)
    if folder == "mooncake" and base in PROGRAMS:
        return base
    if folder.endswith(".libs") and ".so" in base:
        return base
    return None


def missing(folder):
    """Returns the sonames that the programs need and neither folder nor the system has."""
    env = dict(os.environ, LD_LIBRARY_PATH=str(folder), LC_ALL="C")
    names = set()
    for program in PROGRAMS:
        ldd = subprocess.run(["ldd", str(folder / program)], env=env, capture_output=True, text=True)
        if ldd.returncode != 0:
            deps.fail(f"ldd {folder / program}: {(ldd.stdout + ldd.stderr).strip()}")
        names.update(re.findall(r"^\s*(\S+) => not found", ldd.stdout, re.M))
    return sorted(names)


def take_packages(folder, sonames):
    """Copies the shared libraries of the packages that hold sonames into folder."""
    packages = [PACKAGES[s] for s in sonames]
    deps.say(f"taking {', '.join(packages)} into {folder}")
    with tempfile.TemporaryDirectory(prefix=deps.WORK_PREFIX, dir=folder.parent) as tmp:
        command = ["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", *packages]
        got = subprocess.run(command, cwd=tmp, capture_output=True, text=True)
        if got.returncode != 0 and os.geteuid() == 0:  # no package lists yet
            subprocess.run(["apt-get", "update", "-q"], capture_output=True)
            got = subprocess.run(command, cwd=tmp, capture_output=True, text=True)
        if got.returncode != 0:
            deps.fail(f"apt-get could not download {', '.join(packages)}; {HINT}\n{got.stderr.strip()}")
        for deb in Path(tmp).glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(deb), tmp], check=True)
        for lib in Path(tmp).rglob("lib*.so.*"):
            part = folder / (deps.WORK_PREFIX + lib.name)
            shutil.copyfile(lib, part)  # follows links: a soname becomes a file
            part.rename(folder / lib.name)


def complete(folder):
    """Makes the programs executable and sees to it that they link."""
    for program in PROGRAMS:
        (folder / program).chmod(0o755)
    for _ in PACKAGES:  # a package may need another one of the list
        lack = missing(folder)
        if not lack:
            return
        if not set(lack) <= set(PACKAGES) or not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
            deps.fail(f"Mooncake needs libraries that are not installed: {', '.join(lack)}. {HINT}")
        take_packages(folder, lack)
    deps.fail(f"Mooncake still lacks {', '.join(missing(folder))}. {HINT}")


def main():
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=root / ".cache", help="cache folder (default: .cache of the project)")
    args = parser.parse_args()
    arch = platform.machine()

    deps.check_host(arch)
    if arch not in HASHES:
        deps.fail(f"no Mooncake wheel for {arch}; there are some for {', '.join(HASHES)}")
    tag = ["--implementation", "cp", "--python-version", "3.11", "--abi", "cp311"]
    tag += ["--platform", f"manylinux_2_28_{arch}"]
    folder = args.cache / "mooncake" / f"{MOONCAKE[1]}-{arch}"
    with deps.locked(args.cache):
        deps.provide(folder, MOONCAKE, HASHES[arch], tag, member, [*PROGRAMS, "libglog-*"])
        complete(folder)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        deps.fail("interrupted; nothing half done was left")
    except (OSError, subprocess.CalledProcessError) as err:
        deps.fail(str(err))
