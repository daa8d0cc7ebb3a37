"""Addresses of hosts, without waiting for a resolver that hangs. Runs wherever a socket is opened.

The system's resolver has no time limit, and may hang for as long as its name servers do. So it is
asked in a thread, and what it said last stands in if it is slow.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from dataclasses import dataclass, field

__all__ = ["addresses"]

#: How long a resolver is waited for that has answered before: its last answer will do.
_KNOWN_SECONDS = 1.0


@dataclass(slots=True)
class _Question:
    """One look-up; ``answer`` stands when ``done`` is set."""

    done: threading.Event = field(default_factory=threading.Event)
    answer: list[str] | OSError = field(default_factory=list)


_lock = threading.Lock()
#: Look-ups that have not ended: nobody asks twice at once.
_asked: dict[str, _Question] = {}
_known: dict[str, list[str]] = {}


def addresses(host: str, timeout: float) -> list[str]:
    """The addresses of a host, best first, within ``timeout`` seconds.

    Raises:
        TimeoutError: the resolver does not answer, and never has for this host.
        OSError: it knows no such host.
    """
    if _is_address(host):
        return [host]
    with _lock:
        question = _asked.get(host)
        if question is None:
            question = _asked[host] = _Question()
            threading.Thread(
                target=_ask, args=(host, question), name=f"address of {host}", daemon=True
            ).start()
        known = _known.get(host)
    question.done.wait(timeout if known is None else min(timeout, _KNOWN_SECONDS))
    answer = question.answer
    if not question.done.is_set():
        if known is None:
            raise TimeoutError(f"the name was not resolved within {timeout:.0f} s")
        return known
    if isinstance(answer, OSError):
        temporary = isinstance(answer, socket.gaierror) and answer.errno == socket.EAI_AGAIN
        if known is not None and temporary:
            return known
        raise answer
    return answer


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _ask(host: str, question: _Question) -> None:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        question.answer = list(dict.fromkeys(str(address[0]) for *_, address in found))
    except OSError as error:
        question.answer = error
    except UnicodeError as error:
        question.answer = OSError(f"not a host name: {error}")
    with _lock:
        del _asked[host]
        if isinstance(question.answer, list):
            _known[host] = question.answer
    question.done.set()
