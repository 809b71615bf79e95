"""What several folders of tests share, one concept a module. Fixtures are in `conftest.py`."""
