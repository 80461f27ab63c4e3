"""Errors of the schema registry, with the status and error code that Confluent's REST API has for each."""

from typing import ClassVar

from penstock.foundation.errors import PenstockError


class RegistryError(PenstockError):
    """Base class. `error_code` is what clients test; its first three digits are the HTTP status."""

    error_code: ClassVar[int] = 50001

    @property
    def status(self) -> int:
        return self.error_code if self.error_code < 1000 else self.error_code // 100


class SubjectNotFound(RegistryError):
    error_code = 40401

    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject '{subject}' not found.")


class VersionNotFound(RegistryError):
    error_code = 40402

    def __init__(self, version: int) -> None:
        super().__init__(f"Version {version} not found.")


class SchemaNotFound(RegistryError):
    error_code = 40403

    def __init__(self, wanted: int | str | None = None) -> None:
        super().__init__("Schema not found" if wanted is None else f"Schema {wanted} not found")


class SubjectSoftDeleted(RegistryError):
    error_code = 40404

    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently")


class SubjectNotSoftDeleted(RegistryError):
    error_code = 40405

    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject '{subject}' was not deleted first before being permanently deleted")


class VersionSoftDeleted(RegistryError):
    error_code = 40406

    def __init__(self, subject: str, version: int) -> None:
        super().__init__(
            f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
        )


class VersionNotSoftDeleted(RegistryError):
    error_code = 40407

    def __init__(self, subject: str, version: int) -> None:
        super().__init__(
            f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
        )


class CompatibilityNotConfigured(RegistryError):
    error_code = 40408

    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject '{subject}' does not have subject-level compatibility configured")


class ModeNotConfigured(RegistryError):
    error_code = 40409

    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject '{subject}' does not have subject-level mode configured")


class IncompatibleSchema(RegistryError):
    """The schema is not compatible with earlier versions. Clients expect 409 as the error code."""

    error_code = 409


class SchemaRejected(RegistryError):
    """The schema cannot be parsed, refers to a schema that does not exist, or is not allowed."""

    error_code = 42201


class InvalidVersion(RegistryError):
    error_code = 42202

    def __init__(self, version: str) -> None:
        super().__init__(
            f"The specified version '{version}' is not a valid version id. Allowed values are between [1, 2^31-1] "
            'and the string "latest"'
        )


class InvalidCompatibilityLevel(RegistryError):
    error_code = 42203

    def __init__(self) -> None:
        super().__init__(
            "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
            "forward_transitive, and full_transitive"
        )


class InvalidMode(RegistryError):
    error_code = 42204

    def __init__(self) -> None:
        super().__init__("Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, IMPORT, and FORWARD")


class OperationNotPermitted(RegistryError):
    error_code = 42205


class ReferenceExists(RegistryError):
    error_code = 42206

    def __init__(self, subject: str, version: int) -> None:
        super().__init__(
            f"One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={subject},"
            f"version={version}}}."
        )


class InvalidSubject(RegistryError):
    error_code = 42208

    def __init__(self, subject: str) -> None:
        super().__init__(f"The specified subject '{subject[:200]}' is not a valid subject")


class SchemaTooLarge(RegistryError):
    error_code = 42209


class InvalidRuleSet(RegistryError):
    error_code = 42210


class ContextNotEmpty(RegistryError):
    error_code = 42211

    def __init__(self, context: str) -> None:
        super().__init__(f"The specified context '{context}' is not empty.")


class TooManyRequests(RegistryError):
    """More requests wait than are allowed. Clients try again later."""

    error_code = 42901


class StoreFailed(RegistryError):
    """The change could not be written to the topic, or this broker cannot read it."""

    error_code = 50001


class OperationTimedOut(RegistryError):
    error_code = 50002


class ForwardingFailed(RegistryError):
    """The broker that leads the registry's partition could not be asked, or did not answer."""

    error_code = 50003


class LeaderUnknown(RegistryError):
    """No broker leads the registry's partition at the moment."""

    error_code = 50004
