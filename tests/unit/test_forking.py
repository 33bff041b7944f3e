import os

from larder.forking import lock_of_process


def test_a_lock_is_free_in_a_child():
    lock = lock_of_process()
    with lock:
        child = os.fork()
        if not child:
            os._exit(0 if lock.acquire(blocking=False) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert lock.locked()
