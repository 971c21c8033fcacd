"""List calls of MindSpore's public operators, on the tensors of ``operators_program.py``.

``x``, ``y`` [4, 6], ``v`` [6], ``w`` [4], ``s`` [4, 4] (symmetric, positive), ``m`` [6, 5], ``b`` [2, 4, 6], ``c`` [2,
6, 3], ``q`` [2, 4, 10], ``g`` [2, 4, 8, 8], ``d`` [2, 4, 6, 6, 6] are float32, ``a`` [2, 16, 32] is bfloat16, all
between 0.1 and 0.9; ``i`` [4, 6] (0 to 3), ``n`` [4] (0 to 5) and ``j`` [6] (0 to 3) are int64; ``k`` [4, 6] is bool;
``z`` [4, 6] is complex.
"""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parents[1] / "data" / "operators"
CALLS = tuple((DATA / "calls.txt").read_text("utf-8").splitlines())
