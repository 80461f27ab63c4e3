"""Loads on queues, through the SQS API: requests signed and encoded beforehand, and boto3 beside them."""
