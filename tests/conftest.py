"""Its place makes the modules beside it, such as `fake_server`, importable from every test."""
