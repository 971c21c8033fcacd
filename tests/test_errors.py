"""The tree of errors."""

from __future__ import annotations

import inspect
import re

from ms_tune import errors
from ms_tune.errors import ExitCode, MsTuneError


class TestTree:
    def test_the_drawing_is_the_tree(self) -> None:
        assert errors.__doc__ is not None
        drawn = re.findall(r"[├└]── (\w+)", errors.__doc__)
        public = [
            name
            for name, kind in vars(errors).items()
            if inspect.isclass(kind) and issubclass(kind, MsTuneError) and not name.startswith("_")
        ]
        assert sorted(drawn) == sorted(set(public) - {"MsTuneError"})
        assert len(set(drawn)) == len(drawn)

    def test_every_branch_grows_from_the_trunk(self) -> None:
        branch = ""
        for line in (errors.__doc__ or "").splitlines():
            drawn = re.match(r"([ │]*)[├└]── (\w+)", line)
            if drawn is None:
                continue
            parents = [one for one in getattr(errors, drawn[2]).__mro__[1:] if not one.__name__.startswith("_")]
            twig = len(drawn[1]) > len("    ")
            assert parents[0].__name__ == (branch if twig else "MsTuneError"), drawn[2]
            branch = branch if twig else drawn[2]

    def test_every_error_is_the_users_and_not_a_defect(self) -> None:
        kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, MsTuneError)]
        assert {kind.exit_code for kind in kinds} == {ExitCode.USAGE}
