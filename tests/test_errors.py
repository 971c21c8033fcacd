"""Test the tree of errors."""

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

    def test_every_error_but_one_is_the_users_and_not_a_defect(self) -> None:
        kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, MsTuneError)]
        assert {kind for kind in kinds if kind.exit_code != ExitCode.USAGE} == {errors.DefectError}
