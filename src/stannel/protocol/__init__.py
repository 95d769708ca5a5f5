"""The wire between the engine and every task process: bytes in, messages out, no sockets and no clocks."""
