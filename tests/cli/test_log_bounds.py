import logging

from penstock.cli.serve.log_limit import LINES_MAX, WINDOW_S, LogRateLimit


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_one_repeated_error_does_not_fill_the_log_or_hide_others() -> None:
    now_s = 5.0
    handler = Lines()
    handler.addFilter(LogRateLimit(lambda: now_s))
    logger = logging.Logger("test")  # of its own, so that no other handler is asked
    logger.addHandler(handler)

    def complain(number: int) -> None:
        logger.warning("not_followed partition=%d", number)

    for number in range(3 * LINES_MAX):
        complain(number)
    logger.error("disk_full free=%d%%", 0)
    assert handler.lines[:-1] == [f"not_followed partition={number}" for number in range(LINES_MAX)]
    assert handler.lines[-1] == "disk_full free=0%"
    now_s += WINDOW_S
    complain(7)
    complain(8)
    assert handler.lines[-2] == f"not_followed partition=7 lines_left_out={2 * LINES_MAX}"
    assert handler.lines[-1] == "not_followed partition=8"
