"""Forks wait for calls of LLVM, and calls for forks."""

from __future__ import annotations

import os
import threading

from kernelmill.torch_internals import llvm
from kernelmill.torch_internals.llvm import inside_llvm
from tests.forking import in_child


def call() -> None:
    with inside_llvm():
        pass


def test_a_fork_waits_until_other_threads_are_out_of_their_calls() -> None:
    entered, leave, order = threading.Event(), threading.Event(), list[str]()

    def stay() -> None:
        with inside_llvm():
            entered.set()
            leave.wait()
            order.append("call has returned")

    def fork() -> None:
        child = os.fork()
        if not child:
            os._exit(0)
        order.append("forked")
        os.waitpid(child, 0)

    threads = [threading.Thread(target=stay), threading.Thread(target=fork)]
    threads[0].start()
    assert entered.wait(60)
    threads[1].start()
    while not llvm._calls.forking:
        pass
    leave.set()
    for thread in threads:
        thread.join()
    assert order == ["call has returned", "forked"]
    call()


def test_a_child_calls_and_forks() -> None:
    def child() -> None:
        call()
        in_child(call)

    with inside_llvm():  # as a handler of signals that forks
        in_child(child)
    call()
    assert not llvm._calls.inside and not llvm._calls.forking
