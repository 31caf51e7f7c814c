"""Interrupt a computation at any of its operations."""

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class InterruptedAt(TorchDispatchMode):
    """Raises an exception in place of one of torch's operations."""

    def __init__(self, operation: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.left = operation

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return func(*args, **(kwargs or {}))
