"""The `penstock` command line (click): one file or package per command group."""
