"""`penstock pipeline`: Spark pipelines."""
