import importlib
import sys
import threading

from kernelmill.backend import get_backend
from tests.forking import in_child

SLOW = """
import threading
reached, leave = threading.__dict__["kernelmill_test"]
reached.set()
leave.wait()
DONE = True
"""


def test_a_child_imports_what_another_thread_was_importing(tmp_path, monkeypatch):
    get_backend()  # which watches forks
    (tmp_path / "slow_to_import.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    reached, leave = threading.Event(), threading.Event()
    monkeypatch.setattr(threading, "kernelmill_test", (reached, leave), raising=False)
    thread = threading.Thread(target=importlib.import_module, args=["slow_to_import"])
    thread.start()
    try:
        assert reached.wait(60)

        def child():
            leave.__init__()  # another thread may have had its lock
            leave.set()
            assert importlib.import_module("slow_to_import").DONE

        in_child(child)
    finally:
        leave.set()
        thread.join()
    assert sys.modules.pop("slow_to_import").DONE


def test_a_child_keeps_the_module_that_it_was_importing_itself(tmp_path, monkeypatch):
    get_backend()
    (tmp_path / "forks_itself.py").write_text(
        "import sys\nfrom tests.forking import in_child\nWHOLE = False\n"
        "def child():\n    import forks_itself\n    assert forks_itself.WHOLE is False\n"
        "in_child(child)\nWHOLE = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.import_module("forks_itself").WHOLE
    del sys.modules["forks_itself"]
