"""A task that only holds a place in the graph."""

from typing import Any, ClassVar

from stannel.sdk.operator import BaseOperator


class EmptyOperator(BaseOperator):
    """Does nothing; without callbacks it does not even need a process."""

    ui_color = "#e8f7e4"
    does_nothing: ClassVar[bool] = True

    def execute(self, context: Any) -> None:
        pass
