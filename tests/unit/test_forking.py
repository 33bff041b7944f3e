import os
import signal
import threading

import pytest

from larder.forking import cached_property, lock_of_process


def test_a_lock_is_free_in_a_child():
    lock = lock_of_process()
    with lock:
        child = os.fork()
        if not child:
            os._exit(0 if lock.acquire(blocking=False) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert lock.locked()


class Slow:
    """Waits in the thread that asks first, but for a process without that thread."""

    def __init__(self) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()

    @cached_property
    def value(self) -> int:
        if threading.current_thread() is not threading.main_thread():
            self.began.set()
            self.go_on.wait()
        return 3


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # it has threads
def test_a_child_does_not_wait_for_a_property_that_a_thread_computes():
    slow = Slow()
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    slow.began.wait()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        os._exit(slow.value)
    slow.go_on.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == slow.value == 3
