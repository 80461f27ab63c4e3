"""docs/protocol.md says what is served: held against the handlers."""

import re
from pathlib import Path

from penstock.broker.registry import APIS, load_handlers
from penstock.wire.keys import ApiKey

PAGE = Path(__file__).parents[3] / "docs" / "protocol.md"
ROW = re.compile(r"\| (\d+) \| (\w+) \| [^|]+ \| (served|planned|refused)([^|]*) \|")


def test_the_page_names_every_api_and_serves_what_the_handlers_serve() -> None:
    load_handlers()
    rows = {int(key): (name, word, rest.strip()) for key, name, word, rest in ROW.findall(PAGE.read_text())}
    assert set(rows) >= {int(key) for key in ApiKey}
    for key, (name, word, rest) in rows.items():
        api = APIS.get(key)
        assert (word == "served") == (api is not None), name
        if api is not None:
            first, last = api.versions[0], api.versions[-1]
            assert rest == (f"{first}-{last}" if first != last else f"{first}"), name
