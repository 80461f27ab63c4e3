"""Generated tables of the documentation: APIs, settings, limits, error codes, file map.

    python -m penstock.reference          # write them
    python -m penstock.reference --check  # exit code 1 if a page is not up to date

A page contains them between `<!-- generated: NAME -->` and `<!-- end -->`. The text around them is written by hand.
"""
