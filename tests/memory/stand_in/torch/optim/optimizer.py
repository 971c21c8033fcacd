"""One optimizer, and the hooks of all."""

_hooks: list = []
register_optimizer_step_post_hook = _hooks.append


class SGD:
    """An optimizer that does nothing."""

    def step(self) -> None:
        """Make a step."""
        for hook in _hooks:
            hook(self, (), {})
