"""What clients are told about security while there is none, in Kafka's words."""

from typing import Final

NO_AUTHORIZER: Final = "No Authorizer is configured."
