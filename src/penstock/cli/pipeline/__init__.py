"""`penstock pipeline`: lists, describes, validates and runs Spark pipelines."""
