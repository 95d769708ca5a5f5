"""One HTTP call: built from a connection as plain data, then sent by httpx, in a coroutine or in a thread."""

import base64
import importlib
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from stannel.errors import PluginMissing, StannelError, address_without_password
from stannel.triggers.loading import find_object

if TYPE_CHECKING:
    import httpx

# What the `extra` of a connection and the options of a call may set; everything else in `extra` is a header.
OPTIONS = frozenset(
    {"allow_redirects", "cert", "check_response", "max_redirects", "proxies", "proxy", "timeout", "trust_env", "verify"}
)
_IGNORED = frozenset({"stream"})
_DEFAULT_TIMEOUT = 60.0
# The content is stored unpacked, so these would not be true of it any more.
_OF_THE_TRANSPORT = frozenset({"content-encoding", "content-length", "transfer-encoding"})


class HttpConnection(Protocol):
    """What a connection says; `extra` is JSON text."""

    @property
    def host(self) -> str | None: ...
    @property
    def schema(self) -> str | None: ...
    @property
    def port(self) -> int | None: ...
    @property
    def login(self) -> str | None: ...
    @property
    def password(self) -> str | None: ...
    @property
    def extra(self) -> str | None: ...


class HttpFailed(StannelError):
    """A call did not get the answer it was made for. `status` None: it got none at all."""

    def __init__(self, method: str, url: str, reason: str, status: int | None = None) -> None:
        # A query may hold a token.
        shown = address_without_password(url).partition("?")[0]
        super().__init__(f"{method} {shown} {reason}.")
        self.status = status

    @property
    def may_pass(self) -> bool:
        """The same call may well succeed later."""
        return self.status is None or self.status == 429 or self.status >= 500


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """A call that can be sent. Nothing in it is shown: any part may hold a secret."""

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    data: Any = field(default=None, repr=False)
    json: Any = field(default=None, repr=False)
    auth: Any = field(default=None, repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


def http_request_of(
    connection: HttpConnection | None,
    endpoint: str | None = None,
    headers: Mapping[str, Any] | None = None,
    *,
    method: str = "GET",
    data: Any = None,
    json: Any = None,
    extra_options: Mapping[str, Any] | None = None,
    auth_type: Any = None,
) -> HttpRequest:
    """The call that a connection and its user describe. What the user says counts more than what the connection does.

    `data` is the query of a GET or HEAD; otherwise a dict is sent as a form, a text as it is.
    """
    extra = _extra_of(connection)
    own_headers = extra.pop("headers", None)
    options = {name: extra.pop(name) for name in OPTIONS & extra.keys()}
    from_connection = {**extra, **(own_headers if isinstance(own_headers, dict) else {})}
    return HttpRequest(
        method=method.upper(),
        url=url_of(connection, endpoint),
        headers={name: str(value) for name, value in {**from_connection, **(headers or {})}.items()},
        data=data or None,
        json=json,
        auth=_auth_of(auth_type, connection),
        options={**options, **_known(extra_options or {})},
    )


def url_of(connection: HttpConnection | None, endpoint: str | None) -> str:
    """Where the call goes. A connection without a host leaves it to the endpoint to be a whole address."""
    endpoint = endpoint or ""
    host = (connection.host if connection else None) or ""
    if connection is None or not host:
        if "://" in endpoint:
            return endpoint
        raise ValueError(f"There is no host to call {endpoint!r} at; give the connection one.")
    base = host if "://" in host else f"{connection.schema or 'http'}://{host}"
    if connection.port:
        base = f"{base}:{connection.port}"
    return f"{base.rstrip('/')}/{endpoint.lstrip('/')}" if endpoint else base


def _extra_of(connection: HttpConnection | None) -> dict[str, Any]:
    try:
        extra = json.loads((connection.extra if connection else None) or "{}")
    except ValueError:
        return {}
    return {name: value for name, value in extra.items() if name not in _IGNORED} if isinstance(extra, dict) else {}


def _known(options: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(options.keys() - OPTIONS - _IGNORED)
    if unknown:
        raise ValueError(f"There is no HTTP option {unknown[0]!r}; there are {', '.join(sorted(OPTIONS))}.")
    return {name: value for name, value in options.items() if name in OPTIONS}


def _auth_of(auth_type: Any, connection: HttpConnection | None) -> Any:
    login = connection.login if connection else None
    password = (connection.password if connection else None) or ""
    if auth_type is None:
        return (login, password) if login else None
    kind = find_object(auth_type) if isinstance(auth_type, str) else auth_type
    made = kind(login, password) if login else kind()
    # The classes of other libraries, which authors know, hold the two in their own ways.
    if isinstance(made, tuple):
        return made[:2]
    return (made.username, made.password) if hasattr(made, "username") else made


# --- sending -------------------------------------------------------------------------------------------------------


def library() -> Any:
    """The module httpx; `PluginMissing` says how to install it."""
    try:
        return importlib.import_module("httpx")
    except ModuleNotFoundError as error:
        raise PluginMissing("HTTP", "httpx", "http") from error


async def send(request: HttpRequest) -> "httpx.Response":
    """The answer; `HttpFailed` if there is none, or if it is an error."""
    httpx = library()
    try:
        async with httpx.AsyncClient(**_client(request)) as client:
            return _checked(request, await client.request(request.method, request.url, **_call(request)))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise _no_answer(request, error) from error


def send_now(request: HttpRequest) -> "httpx.Response":
    """As `send`, for code that may block."""
    httpx = library()
    try:
        with httpx.Client(**_client(request)) as client:
            return _checked(request, client.request(request.method, request.url, **_call(request)))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise _no_answer(request, error) from error


def _client(request: HttpRequest) -> dict[str, Any]:
    options = request.options
    limit = options.get("timeout", _DEFAULT_TIMEOUT)
    cert = options.get("cert")
    arguments = {
        "follow_redirects": options.get("allow_redirects", True),
        "max_redirects": options.get("max_redirects", 20),
        "trust_env": options.get("trust_env", True),
        "timeout": limit if not isinstance(limit, list | tuple) else library().Timeout(limit[1], connect=limit[0]),
        "verify": _tls(options.get("verify", True), tuple(cert) if isinstance(cert, list) else cert),
    }
    scheme = request.url.partition(":")[0]
    proxy = options.get("proxy") or (options.get("proxies") or {}).get(scheme)
    return {**arguments, "proxy": proxy} if proxy else arguments


# Reading the certificates of all authorities takes tens of milliseconds, in which no other trigger could run.
@cache
def _tls(verify: bool | str, cert: str | tuple[str, ...] | None) -> ssl.SSLContext:
    context: ssl.SSLContext
    if isinstance(verify, str):
        context = ssl.create_default_context(cafile=verify)
    else:
        context = library().create_ssl_context(verify=verify)
    if cert:
        context.load_cert_chain(*((cert,) if isinstance(cert, str) else cert))
    return context


def _call(request: HttpRequest) -> dict[str, Any]:
    call: dict[str, Any] = {"headers": dict(request.headers), "auth": request.auth, "json": request.json}
    if request.auth is None:
        del call["auth"]
    if request.data is None:
        return call
    if request.method in {"GET", "HEAD"}:
        return {**call, "params": request.data}
    return {**call, "content" if isinstance(request.data, str | bytes) else "data": request.data}


def _checked(request: HttpRequest, response: "httpx.Response") -> "httpx.Response":
    if response.is_error and request.options.get("check_response", True):
        words = f"answered {response.status_code} {response.reason_phrase}".rstrip()
        raise HttpFailed(request.method, request.url, words, response.status_code)
    return response


def _no_answer(request: HttpRequest, error: Exception) -> HttpFailed:
    return HttpFailed(request.method, request.url, f"got no answer: {str(error) or type(error).__name__}")


# --- keeping an answer ---------------------------------------------------------------------------------------------


class _Kept(msgspec.Struct, frozen=True):
    method: str
    url: str
    status: int
    headers: list[tuple[str, str]]
    content: bytes


def dump_response(response: "httpx.Response") -> str:
    """The answer as a text that `read_response` makes an equal answer of."""
    headers = [pair for pair in response.headers.multi_items() if pair[0].lower() not in _OF_THE_TRANSPORT]
    request = response.request
    kept = _Kept(request.method, str(request.url), response.status_code, headers, response.content)
    return base64.b64encode(msgspec.msgpack.encode(kept)).decode()


def read_response(text: str) -> "httpx.Response":
    """The answer that was kept."""
    kept = msgspec.msgpack.decode(base64.b64decode(text), type=_Kept)
    made = library()
    request = made.Request(kept.method, kept.url)
    response: httpx.Response = made.Response(kept.status, headers=kept.headers, content=kept.content, request=request)
    return response
