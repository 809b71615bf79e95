"""The modules of `reference_server`; its engines have a folder of their own."""
