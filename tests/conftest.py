"""Its place makes the modules beside it, such as `fake_server`, importable from every test."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell started the tests in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C is to reach what they start
