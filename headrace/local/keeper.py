"""A small process that starts one service and never outlives the process that asked for it.

The parent holds the other end of standard input. When the parent goes away, however it goes, the pipe
closes and the service is stopped cleanly; a service that ignores its stop signal is killed after a deadline.
Only the standard library is used and the file is run by its path: a keeper starts in a moment, stays small.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

CLONE_NEWUSER = 0x10000000
PR_SET_PDEATHSIG = 1
CANNOT_START = 125

_stop_asked = False


def main(arguments: list[str]) -> int:
    options = _parse(arguments)
    stop_signal = signal.Signals[f"SIG{options.stop_signal}"]
    os.nice(options.nice)
    if options.run:
        _become(options.identity, stop_signal)
        os.execvp(options.command[0], options.command)
    signal.signal(signal.SIGTERM, _ask_stop)
    signal.signal(signal.SIGINT, _ask_stop)
    parent = os.getppid()
    try:
        service = subprocess.Popen(
            options.command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            start_new_session=True,
            preexec_fn=lambda: _become(options.identity, stop_signal),
        )
    except (OSError, subprocess.SubprocessError) as error:
        print(f"cannot start {options.command[0]}: {error}", file=sys.stderr, flush=True)
        return CANNOT_START
    print(service.pid, flush=True)
    while service.poll() is None and not _stop_asked and os.getppid() == parent:
        if _input_closed(0.2):
            break
    return _end(service, stop_signal, options.deadline)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="keeper")
    parser.add_argument("--stop-signal", default="TERM")
    parser.add_argument(
        "--deadline", type=float, default=20.0, help="seconds between the stop signal and SIGKILL"
    )
    parser.add_argument("--identity", default="same", help="same, uid:N or namespace:N")
    parser.add_argument("--nice", type=int, default=0, help="how far to stand back from other processes")
    parser.add_argument("--run", action="store_true", help="become the command instead of keeping it")
    parser.add_argument("command", nargs="+")
    return parser.parse_args(arguments)


def _ask_stop(_number: int, _frame: object) -> None:
    global _stop_asked
    _stop_asked = True


def _input_closed(seconds: float) -> bool:
    readable, _, _ = select.select([0], [], [], seconds)
    return bool(readable) and os.read(0, 4096) == b""


def _end(service: subprocess.Popen[bytes], stop_signal: signal.Signals, deadline: float) -> int:
    if service.poll() is None:
        service.send_signal(stop_signal)
        until = time.monotonic() + deadline
        while service.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
    if service.poll() is None:
        os.killpg(service.pid, signal.SIGKILL)
        service.wait()
    return service.returncode if service.returncode >= 0 else 128 - service.returncode


def _become(identity: str, stop_signal: signal.Signals) -> None:
    """Runs in the child before exec: take the identity, and ask to be stopped if the keeper is killed."""
    kind, _, number = identity.partition(":")
    if kind == "namespace":
        _enter_namespace(int(number))
    elif kind == "uid":
        os.setgroups([])
        os.setgid(int(number))
        os.setuid(int(number))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(stop_signal))


def _enter_namespace(uid: int) -> None:
    """Appear as an ordinary user while the files stay the caller's own: nothing changes outside."""
    outside_uid, outside_gid = os.geteuid(), os.getegid()
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUSER):
        raise OSError(ctypes.get_errno(), "user namespaces are not available")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {outside_uid} 1"),
        ("gid_map", f"{uid} {outside_gid} 1"),
    ):
        Path(f"/proc/self/{name}").write_text(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
