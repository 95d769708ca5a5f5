"""A sensor that asks an HTTP server. It needs the extra `http`."""

from collections.abc import Callable, Sequence
from typing import Any

from stannel.sdk import building
from stannel.sdk.connection import Connection
from stannel.sdk.deferral import built_in
from stannel.sdk.exceptions import AirflowException
from stannel.sdk.operators.python import determine_kwargs
from stannel.sdk.sensors.base import BaseSensorOperator, DeferrableSensor, PokeReturnValue
from stannel.triggers.base import BaseTrigger

_NOT_YET = ("404",)


class HttpSensor(DeferrableSensor):
    """Waits until a server answers without an error, and until `response_check`, if given, accepts its answer.

    A status in `response_error_codes_allowlist` (404) means not yet. A check is a function of this file, so a sensor
    with one, or with other codes, looks itself even if it is deferrable.
    """

    trigger_module = "http"
    template_fields: Sequence[str] = ("endpoint", "request_params", "headers")

    def __init__(
        self,
        *,
        endpoint: str,
        http_conn_id: str = "http_default",
        method: str = "GET",
        request_params: Any = None,
        request_kwargs: dict[str, Any] | None = None,
        headers: dict[str, Any] | None = None,
        response_error_codes_allowlist: Sequence[str] | None = None,
        response_check: Callable[..., Any] | None = None,
        extra_options: dict[str, Any] | None = None,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(deferrable=deferrable, **kwargs)
        self.endpoint, self.http_conn_id, self.method = endpoint, http_conn_id, method
        self.request_params, self.headers = request_params, headers or {}
        self.request_kwargs, self.extra_options = request_kwargs or {}, extra_options or {}
        unknown = sorted(self.request_kwargs.keys() - {"json"})
        if unknown:
            raise self._wrong(f"request_kwargs has {unknown[0]!r}, but only 'json' is understood")
        codes = _NOT_YET if response_error_codes_allowlist is None else response_error_codes_allowlist
        self.response_error_codes_allowlist = tuple(str(code) for code in codes)
        self.response_check = response_check
        if deferrable and not self._can_be_left:
            building.warn(
                f"task {self.task_id!r}: it looks itself though deferrable=True is given, because a trigger cannot "
                "know its response_check, request_kwargs or response_error_codes_allowlist"
            )

    @property
    def _can_be_left(self) -> bool:
        is_plain = self.response_check is None and not self.request_kwargs
        return is_plain and self.response_error_codes_allowlist == _NOT_YET

    def _wait(self, context: Any) -> Any:
        return super()._wait(context) if self._can_be_left else BaseSensorOperator._wait(self, context)

    def poke(self, context: Any) -> bool | PokeReturnValue:
        self.log.info("Asking %s %s", self.method, self.endpoint)
        response = self._response()
        if response is None or self.response_check is None:
            return response is not None
        answer = self.response_check(response, **determine_kwargs(self.response_check, [response], {}, context))
        return answer if isinstance(answer, PokeReturnValue) else bool(answer)

    def _response(self) -> Any:
        """The server's answer. None: not yet."""
        failed: type[Any] = built_in("http_calls", "HttpFailed")
        request = built_in("http_calls", "http_request_of")(
            Connection.get(self.http_conn_id),
            self.endpoint,
            self.headers,
            method=self.method,
            data=self.request_params,
            json=self.request_kwargs.get("json"),
            extra_options=self.extra_options,
        )
        try:
            return built_in("http_calls", "send_now")(request)
        except failed as error:
            if str(error.status) in self.response_error_codes_allowlist:
                self.log.info("%s", error)
                return None
            raise AirflowException(str(error)) from error

    def trigger_for(self, context: Any) -> BaseTrigger:
        trigger: BaseTrigger = built_in("http", "HttpSensorTrigger")(
            endpoint=self.endpoint,
            http_conn_id=self.http_conn_id,
            method=self.method,
            headers=self.headers,
            data=self.request_params,
            extra_options=self.extra_options,
            poke_interval=self.poke_interval,
        )
        return trigger
