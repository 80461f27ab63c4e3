"""`/config` and `/mode`: compatibility levels and modes of subjects, contexts and the whole registry."""

from typing import Any

from penstock.registry.rest import RestCall, route
from penstock.schemas.registry.commands import DeleteConfig, DeleteMode, SetConfig, SetMode
from penstock.schemas.registry.errors import (
    CompatibilityNotConfigured,
    InvalidMode,
    InvalidSubject,
    ModeNotConfigured,
    OperationNotPermitted,
)
from penstock.schemas.registry.layout import IDS_SUBJECT
from penstock.schemas.registry.model import Config, Mode
from penstock.schemas.registry.state import RegistryState
from penstock.schemas.registry.subjects import Subject, is_valid


def _scope(call: RestCall, name: str) -> str | None:
    """Returns the subject or context that a setting applies to; None: the whole registry. Raises InvalidSubject."""
    subject = call.scope(name)
    if not is_valid(name, is_setting=True) or subject == IDS_SUBJECT:
        raise InvalidSubject(name)
    return None if Subject.parse(subject).is_default_context else subject


# -- config


@route("GET", "config")
async def get_registry_config(call: RestCall) -> Any:
    return await get_config(call, "")


@route("GET", "config/*")
async def get_config(call: RestCall, name: str) -> Any:
    scope, is_global = _scope(call, name), call.flag("defaultToGlobal")

    def read(state: RegistryState) -> Config:
        found = state.config_in_scope(scope) if is_global else state.config(scope)
        if found is None:
            raise CompatibilityNotConfigured(scope or "")
        return found

    return _config_body(await call.service.read(read), "compatibilityLevel")


@route("PUT", "config", writes=True)
async def set_registry_config(call: RestCall) -> Any:
    return await set_config(call, "")


@route("PUT", "config/*", writes=True)
async def set_config(call: RestCall, name: str) -> Any:
    changes = dict(call.json)
    if "compatibility" in changes:  # the name in requests; responses and records have the other one
        changes["compatibilityLevel"] = changes.pop("compatibility")
    for rules in ("defaultRuleSet", "overrideRuleSet"):
        parsed = Config.parse({rules: changes[rules]}) if changes.get(rules) else Config()
        for each in (parsed.default_rule_set, parsed.override_rule_set):
            if each is not None:
                each.validate()
    found = await call.service.change(SetConfig(_scope(call, name), changes))
    return _config_body(found, "compatibility")


@route("DELETE", "config", writes=True)
async def delete_registry_config(call: RestCall) -> Any:
    return await delete_config(call, "")


@route("DELETE", "config/*", writes=True)
async def delete_config(call: RestCall, name: str) -> Any:
    return _config_body(await call.service.change(DeleteConfig(_scope(call, name))), "compatibilityLevel")


def _config_body(found: Config, level_name: str) -> dict[str, Any]:
    body = found.json()
    return {level_name if name == "compatibilityLevel" else name: value for name, value in body.items()}


# -- mode


@route("GET", "mode")
async def get_registry_mode(call: RestCall) -> Any:
    return await get_mode(call, "")


@route("GET", "mode/*")
async def get_mode(call: RestCall, name: str) -> Any:
    scope, is_global = _scope(call, name), call.flag("defaultToGlobal")

    def read(state: RegistryState) -> Mode:
        found = state.mode_in_scope(scope) if is_global else state.mode(scope)
        if found is None:
            raise ModeNotConfigured(scope or "")
        return found

    return {"mode": (await call.service.read(read)).value}


@route("PUT", "mode", writes=True)
async def set_registry_mode(call: RestCall) -> Any:
    return await set_mode(call, "")


@route("PUT", "mode/*", writes=True)
async def set_mode(call: RestCall, name: str) -> Any:
    scope, text = _scope(call, name), call.json.get("mode")
    if text is not None and not isinstance(text, str):
        raise InvalidMode
    mode = None if text is None else Mode.parse(text)
    if mode is Mode.FORWARD:
        raise OperationNotPermitted("Mode FORWARD is not supported: there is no other registry to forward to")
    await call.service.change(SetMode(scope, mode, call.flag("force")))
    return {} if mode is None else {"mode": mode.value}


@route("DELETE", "mode", writes=True)
async def delete_registry_mode(call: RestCall) -> Any:
    return await delete_mode(call, "")


@route("DELETE", "mode/*", writes=True)
async def delete_mode(call: RestCall, name: str) -> Any:
    found = await call.service.change(DeleteMode(_scope(call, name), call.flag("recursive")))
    return {} if found is None else {"mode": found.value}
