"""The Amazon SQS API over HTTP: JSON 1.0 and the older Query protocol. Stateless: any broker answers any request."""
