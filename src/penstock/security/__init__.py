"""Authentication and authorization of SQS requests: SigV4 signatures, access keys, queue policies."""
