"""A task whose SQL goes on in the PostgreSQL server when its worker dies, and is found again by application_name."""

import importlib
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from stannel.sdk.connection import Connection
from stannel.sdk.exceptions import AirflowException
from stannel.sdk.operator import BaseOperator
from stannel.sdk.resumable import ResumableJobMixin

# The token is there before the work begins: a second one of the same token waits for it and then fails.
_LEDGER = "CREATE TABLE IF NOT EXISTS {table} (token TEXT PRIMARY KEY, finished_at TIMESTAMPTZ)"
_SCRIPT = """\
INSERT INTO {table} (token) VALUES ({token});
{sql}
;
UPDATE {table} SET finished_at = clock_timestamp() WHERE token = {token};
"""
_ACTIVE = "SELECT 1 FROM pg_stat_activity WHERE application_name = %s AND pid <> pg_backend_pid()"
_FINISHED = "SELECT 1 FROM {table} WHERE token = %s AND finished_at IS NOT NULL"
_CANCEL = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = %s AND pid <> pg_backend_pid()"


class PostgresJobOperator(ResumableJobMixin, BaseOperator):
    """Runs SQL in one transaction of the server, which goes on without us; `result_sql` gives the rows to return.

    A table of tokens (`ledger_table`) is written in the same transaction, so that it takes effect once at most. The
    SQL must not return rows to us or end the transaction itself.
    """

    external_id_key = "postgres_job"
    template_fields: Sequence[str] = ("sql", "result_sql", "conn_id")
    template_ext: Sequence[str] = (".sql",)
    ui_color = "#ededed"

    def __init__(
        self,
        *,
        sql: str,
        conn_id: str = "postgres_default",
        result_sql: str | None = None,
        ledger_table: str = "stannel_jobs",
        poll_interval: float = 1.0,
        cancel_on_kill: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.sql, self.conn_id, self.result_sql, self.ledger_table = sql, conn_id, result_sql, ledger_table
        self.poll_interval, self.cancel_on_kill = poll_interval, cancel_on_kill
        self._submitted: Any = None

    def execute(self, context: Any) -> Any:
        try:
            return self.execute_resumable(context)
        finally:
            if self._submitted is not None:
                self._submitted.close()

    def submit_job(self, context: Any) -> Any:
        token = str(self.submission_token)
        with self._connection() as connection:
            connection.execute(self._with_table(_LEDGER))
        self._submitted = connection = self._connect(application_name=token)
        script = self._with_table(_SCRIPT).format(
            token=_driver().sql.Literal(token).as_string(connection), sql=self.sql
        )
        # One message: the server has all of it before it begins, and needs nobody to tell it to go on.
        connection.pgconn.send_query(script.encode())
        while connection.pgconn.flush():
            select.select([], [connection.pgconn.socket], [])
        return token

    def find_job(self, token: str, context: Any) -> Any:
        """The token, if its SQL runs or has taken effect."""
        status = self.get_job_status(token, context)
        return token if self.is_job_active(status) or self.is_job_succeeded(status) else None

    def get_job_status(self, external_id: Any, context: Any) -> str:
        with self._connection() as connection:
            # In this order: what ends between the two questions has been committed by then, or never will be.
            if connection.execute(_ACTIVE, [external_id]).fetchone() is not None:
                return "RUNNING"
            connection.execute(self._with_table(_LEDGER))
            finished = connection.execute(self._with_table(_FINISHED), [external_id]).fetchone()
            return "ROLLED BACK" if finished is None else "COMMITTED"

    def is_job_active(self, status: str) -> bool:
        return status == "RUNNING"

    def is_job_succeeded(self, status: str) -> bool:
        return status == "COMMITTED"

    def poll_until_complete(self, external_id: Any, context: Any) -> None:
        if self._submitted is not None and self._has_answered():
            return
        while self.is_job_active(status := self.get_job_status(external_id, context)):
            time.sleep(self.poll_interval)
        if not self.is_job_succeeded(status):
            raise AirflowException(
                f"The SQL of {external_id} did not take effect: {status}. The server's log says why."
            )

    def get_job_result(self, external_id: Any, context: Any) -> Any:
        if self.result_sql is None:
            return None
        with self._connection() as connection:
            return [list(row) for row in connection.execute(self.result_sql).fetchall()]

    def on_kill(self) -> None:
        if self.cancel_on_kill and self.submission_token is not None:
            with self._connection() as connection:
                connection.execute(_CANCEL, [self.submission_token])

    def _has_answered(self) -> bool:
        """Wait for the answer on the connection that asked. False: the connection is lost, the SQL may go on."""
        pgconn, pq, lost = self._submitted.pgconn, _driver().pq, _driver().OperationalError
        try:
            while (result := self._next_result(pgconn)) is not None:
                if result.status == pq.ExecStatus.FATAL_ERROR:
                    message = (result.error_message or b"").decode(errors="replace").strip()
                    raise AirflowException(f"The server refused the SQL: {message}")
        except lost:
            self.log.warning("The connection to the server is lost; asking it whether the SQL goes on")
            return False
        return True

    @staticmethod
    def _next_result(pgconn: Any) -> Any:
        while pgconn.is_busy():
            select.select([pgconn.socket], [], [])
            pgconn.consume_input()
        return pgconn.get_result()

    def _with_table(self, statement: str) -> str:
        name = _driver().sql.Identifier(*self.ledger_table.split(".")).as_string(None)
        return statement.replace("{table}", name)

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        connection = self._connect()
        try:
            yield connection
        finally:
            connection.close()

    def _connect(self, **options: str) -> Any:
        conn = Connection.get(self.conn_id)
        return _driver().connect(
            host=conn.host,
            port=conn.port or 5432,
            user=conn.login,
            password=conn.password,
            dbname=conn.schema,
            autocommit=True,
            **options,
        )


def _driver() -> Any:
    """The client library; whoever has none is told what to install."""
    try:
        driver = importlib.import_module("psycopg")
        importlib.import_module("psycopg.sql")
    except ImportError as error:
        raise AirflowException("PostgresJobOperator needs psycopg; pip install 'stannel[postgres]'") from error
    return driver
