"""The error message for ACL requests, as in Kafka without an authorizer."""

from typing import Final

NO_AUTHORIZER: Final = "No Authorizer is configured."
