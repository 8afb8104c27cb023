import time


def slow(seconds: float) -> str:
    """Sleeps.

    Args:
        seconds: How long to sleep
    """
    time.sleep(min(seconds, 60.0))
    return f"slept {seconds}"
