"""An object in a process of its own: it works all the time and answers calls in between."""

import multiprocessing
import signal
import threading
import time
import traceback


class Servant:
    """``make(*args)`` in a new process; its ``work()`` is called again and again.

    Any other method of it can be called on the Servant, from any thread. ``work`` says whether
    there was something to do; if not, it is left alone for a moment. The process ends with
    ``close``, or with its parent.
    """

    def __init__(self, make, *args):
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        self._pipe, self._lock = here, threading.Lock()
        self._process = context.Process(target=_serve, args=(make, args, there), daemon=True)
        self._process.start()
        there.close()
        self._receive(180)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*args, patience=120):
            with self._lock:
                self._pipe.send((name, args))
                return self._receive(patience)

        return call

    def close(self):
        self._pipe.close()
        self._process.join(30)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _receive(self, patience):
        if not self._pipe.poll(patience):
            raise TimeoutError(f"{self._process.name} does not answer")
        answer, error = self._pipe.recv()
        if error is not None:
            raise RuntimeError(error)
        return answer


def _serve(make, args, pipe):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's Ctrl-C: it decides what happens
    try:
        made = make(*args)
        pipe.send((None, None))
    except Exception:
        pipe.send((None, traceback.format_exc()))
        return
    failed = None
    try:
        while True:
            busy = False
            if failed is None:
                try:
                    busy = made.work()
                except Exception:
                    failed = traceback.format_exc()  # told to whoever asks next
            if pipe.poll(0 if busy else 0.02):
                name, arguments = pipe.recv()
                pipe.send(_answer(made, name, arguments, failed))
            elif not busy:
                time.sleep(0.01)
    except (EOFError, OSError):
        made.close()


def _answer(made, name, arguments, failed):
    if failed is not None:
        return None, failed
    try:
        return getattr(made, name)(*arguments), None
    except Exception:
        return None, traceback.format_exc()
