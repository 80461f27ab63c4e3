"""Generated tables of the documentation: APIs, settings, limits, error codes, file map.

    python -m penstock.reference          # write the tables
    python -m penstock.reference --check  # exit code 1 if a page is not up to date

A page contains each table between `<!-- generated: NAME -->` and `<!-- end -->`. The other text is written by hand.
"""
