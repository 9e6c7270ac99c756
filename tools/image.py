"""An image of the server without a container engine: its Containerfile is carried out.

python -m tools.image       both stages of examples/serve/Containerfile, then the service as the
                            second one starts it: not as root, the root read-only, no compiler;
                            it is asked, checked and stopped

Each stage is a layer above this machine's own system, in place of the image that FROM names; layers
are mounts of overlayfs that end with the processes in them. Compilers are taken out of the lowest
one, and the checkout is hidden from all. It needs root, and a Python in /usr/bin with venv; pip is
configured as it is here. Exit code 1 when something fails.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONTAINERFILE = ROOT / "examples" / "serve" / "Containerfile"
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "ld", "as")
SERVICE = "http://127.0.0.1:8000"

_PATH = "/usr/local/bin:/usr/bin:/bin"
_START_SECONDS = 600
"""Until the service has called all of its programs; a machine that others use too is slow."""

_LAYERS = "/dev/shm"  # overlayfs takes no layer from below another one
_CONFIGURED = ("PIP_", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


def instructions(text: str) -> list[list[tuple[str, str]]]:
    """The stages of a Containerfile: each instruction's name, and the rest on one line."""
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    stages: list[list[tuple[str, str]]] = []
    for line in filter(str.strip, lines):
        name, rest = line.split(None, 1)
        if name == "FROM":
            stages.append([])
        stages[-1].append((name, rest))
    return stages


@dataclass
class Stage:
    """A stage as far as it is carried out. `layer` has its files, `lower` the layers below it."""

    layer: Path
    lower: Sequence[Path]
    context: Path
    others: Mapping[str, Stage] = field(default_factory=dict[str, "Stage"])
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": _PATH})
    arguments: dict[str, str] = field(default_factory=dict[str, str])
    folder: str = "/"
    user: str = "root"
    command: list[str] = field(default_factory=list[str])
    health: list[str] = field(default_factory=list[str])

    def carry_out(self, name: str, rest: str) -> None:
        """One instruction. ValueError for one that is not known here."""
        print(f"  {name} {rest[:90]}", flush=True)
        if name == "COPY":
            self._copy(rest.split())
        elif name == "RUN":
            run(self.within(["/bin/sh", "-c", rest], user="root", writable=True))
        elif name == "ARG":
            key, _, default = rest.partition("=")
            self.arguments[key] = default
        elif name == "ENV":
            for key, value in (pair.split("=", 1) for pair in shlex.split(rest)):
                self.environment[key] = re.sub(r"\$(\w+)", self._argument, value)
        elif name == "WORKDIR":
            self.folder = rest
            (self.layer / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif name == "USER":
            self.user = rest
        elif name == "CMD":
            self.command = json.loads(rest)
        elif name == "HEALTHCHECK":
            self.health = json.loads(rest.removeprefix("CMD "))
        elif name not in ("FROM", "EXPOSE", "STOPSIGNAL"):
            raise ValueError(f"{name}: not known here")

    def _argument(self, match: re.Match[str]) -> str:
        return self.arguments[match[1]]

    def _copy(self, words: list[str]) -> None:
        source = self.context
        if words[0].startswith("--from="):
            source = self.others[words.pop(0).removeprefix("--from=")].layer
        *names, target = words
        into = self.layer / target.lstrip("/")
        for name in names:
            found = source / name.lstrip("/")
            if found.is_dir():
                skipped = shutil.ignore_patterns("__pycache__")
                shutil.copytree(found, into, symlinks=True, dirs_exist_ok=True, ignore=skipped)
            else:
                into.mkdir(parents=True, exist_ok=True)
                shutil.copy2(found, into)

    def within(self, command: Sequence[str], user: str, writable: bool) -> list[str]:
        """The command that runs another one in this stage's files, as the same process. /tmp is
        empty memory; what is written elsewhere stays in the layer, or is refused."""
        lower = ":".join(map(str, [*self.lower, "/"]))
        work, root = self.layer.with_suffix(".work"), self.layer.with_suffix(".root")
        options = f"lowerdir={lower},upperdir={self.layer},workdir={work}"
        if not writable:
            options = f"ro,lowerdir={self.layer}:{lower}"
        for made in (work, root):
            made.mkdir(exist_ok=True)
        variables = self.environment | self.arguments
        if writable:
            # An index that cannot be reached here is asked once for each package, not six times.
            own = {k: v for k, v in os.environ.items() if k.startswith(_CONFIGURED)}
            variables |= {"PIP_RETRIES": "0", **own}
        script = (
            f"mount -t overlay overlay -o {options} {root} && "
            f"mount -t tmpfs -o mode=1777 tmpfs {root}/tmp && "
            # A checkout below /tmp is hidden by now.
            f"{{ [ ! -d {root}{ROOT} ] || mount -t tmpfs tmpfs {root}{ROOT}; }} && "
            f"mount --rbind /proc {root}/proc && mount --rbind /dev {root}/dev && "
            f'exec chroot {root} setpriv --reuid {user} "$@"'
        )
        pairs = [f"{key}={value}" for key, value in variables.items()]
        group = "root" if user == "root" else "nogroup"
        return [
            "unshare", "--mount", "sh", "-c", script, "sh", "--regid", group, "--clear-groups",
            "env", "-i", f"--chdir={self.folder}", *pairs, *command,
        ]  # fmt: skip


def run(command: Sequence[str]) -> str:
    """Its output. CalledProcessError with all that it printed when it fails."""
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=True,
    ).stdout  # fmt: skip


def build(containerfile: Path, context: Path, folder: Path) -> Stage:
    """Carry out all stages below `folder`; the last one."""
    base = folder / "base"
    base.mkdir()
    python = base / "usr" / "local" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to("/usr/bin/python3")
    lowest = Stage(base, [], context)
    run(lowest.within(["/bin/sh", "-c", f"rm -f {' '.join(_compilers())}"], "root", True))
    stages: dict[str, Stage] = {}
    made = lowest
    for number, found in enumerate(instructions(containerfile.read_text())):
        print(f"stage {number}", flush=True)
        layer = folder / f"stage-{number}"
        layer.mkdir()
        made = Stage(layer, [base], context, stages)
        name = re.search(r" AS (\w+)$", found[0][1])
        stages[name[1] if name else str(number)] = made
        for instruction in found:
            made.carry_out(*instruction)
    return made


def _compilers() -> Iterator[str]:
    """The files of compilers in this system's folders of commands, by any of their names."""
    names = "|".join(map(re.escape, COMPILERS))
    whole = re.compile(rf"(?:[\w.]+-)*(?:{names})(?:-[\d.]+)?")
    for folder in ("/usr/bin", "/usr/local/bin"):
        yield from (f"{folder}/{name}" for name in os.listdir(folder) if whole.fullmatch(name))


def try_service(stage: Stage) -> None:
    """Start the service as the image does, ask it, and stop it. AssertionError for what is not as
    it should be."""
    looked = f"! command -v {' && ! command -v '.join(COMPILERS)}"
    run(stage.within(["/bin/sh", "-c", looked], stage.user, False))
    service = subprocess.Popen(stage.within(stage.command, stage.user, False))
    try:
        _wait_until_ready(service)
        run(stage.within(stage.health, stage.user, False))
        vectors = json.loads(_answer("/embed", {"texts": ["The ferry leaves at nine."]}))["vectors"]
        assert len(vectors) == 1 and len(vectors[0]) == 384, "one vector of MiniLM's size"
        lines = r'^kernelmill_(loaded|traced)_total\{method="\w+"\} ([\d.]+)'
        found = re.findall(lines, _answer("/metrics"), re.M)
        assert {name for name, value in found if float(value)} == {"loaded"}, found
        service.send_signal(signal.SIGTERM)
        assert service.wait(60) == 0, f"it ended with exit code {service.returncode}"
    finally:
        if service.poll() is None:
            service.kill()
            service.wait()


def _wait_until_ready(service: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_SECONDS
    while True:
        assert service.poll() is None, f"it ended with exit code {service.returncode}"
        assert time.monotonic() < end, "it is not ready"
        try:
            _answer("/ready")
            return
        except OSError:  # it does not listen yet, or says 503
            time.sleep(0.5)


def _answer(path: str, document: object = None) -> str:
    data = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(SERVICE + path, data, {"content-type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        return answer.read().decode()


def main() -> int:
    """Build and try; prints what is done."""
    with tempfile.TemporaryDirectory(prefix="kernelmill-image-", dir=_LAYERS) as folder:
        os.chmod(folder, 0o755)
        try:
            stage = build(CONTAINERFILE, ROOT, Path(folder))
            print(f"the service, as {stage.user}, without a compiler, its root read-only")
            try_service(stage)
        except subprocess.CalledProcessError as error:
            print(f"failed: {shlex.join(error.cmd)}\n{error.stdout}", file=sys.stderr)
            return 1
        except AssertionError as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
    print("the image starts from its baked programs, traces and compiles nothing, and stops")
    return 0


if __name__ == "__main__":
    sys.exit(main())
