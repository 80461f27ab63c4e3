"""Kafka's error text for ACL requests on a cluster without an authorizer."""

from typing import Final

NO_AUTHORIZER: Final = "No Authorizer is configured."
