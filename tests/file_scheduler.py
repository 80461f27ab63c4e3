"""Distributes test files over the workers of pytest-xdist, as `--dist loadfile` does; a test may end its worker."""

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


class FileScheduling(LoadFileScheduling):
    """Does not run a test again that has ended its worker, such as one that hangs: it would end the next one, too."""

    def remove_node(self, node: WorkerController) -> str | None:
        """Returns the test that has ended the worker, if one has; other workers run the rest of its file."""
        for tests in self.assigned_work[node].values():
            for name, is_finished in tests.items():
                if not is_finished:
                    tests[name] = True
                    super().remove_node(node)
                    return name
        super().remove_node(node)
        return None
