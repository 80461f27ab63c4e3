"""`penstock schema`: subjects, schemas and settings of a schema registry."""
