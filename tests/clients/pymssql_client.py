"""The witness pymssql, over FreeTDS's DB-Library: see README.md."""

import datetime
import json
import os
import sys
import uuid

import pymssql
from pymssql import _mssql


def say(**event):
    print(json.dumps(event), flush=True)


def shown(value):
    if value is None:
        return None
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, bytes):
        # DB-Library hands over the bytes of a sql_variant as they are: an integer's, wherever this server sends one.
        return str(int.from_bytes(value, "little", signed=True))
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.") + f"{value.microsecond // 1000:03}"
    if isinstance(value, uuid.UUID):
        return str(value).upper()
    return str(value)


def heard(state, severity, server, procedure, line, text):
    say(message=text.decode(), **{"class": severity}, state=state, line=line)


def connect(**more):
    return _mssql.connect(
        server="127.0.0.1",
        port=os.environ["TDS_PORT"],
        user=os.environ["TDS_USER"],
        password=os.environ["TDS_PASSWORD"],
        encryption="require" if os.environ.get("TDS_ENCRYPT") != "off" else "off",
        **more,
    )


def batch(connection, text):
    try:
        connection.execute_query(text)
        while True:
            header = connection.get_header()
            if header:
                say(columns=[column[0] for column in header])
                for row in connection:
                    say(row=[shown(row[i]) for i in range(len(header))])
                say(done=connection.rows_affected)
            if not connection.nextresult():
                break
    except _mssql.MSSQLDatabaseException as error:
        say(failed=error.number, severity=error.severity, state=error.state)


def parameters():
    """The usual interface, with transactions that it opens unasked."""
    connection = pymssql.connect(
        server="127.0.0.1",
        port=os.environ["TDS_PORT"],
        user=os.environ["TDS_USER"],
        password=os.environ["TDS_PASSWORD"],
        database="shop",
    )
    cursor = connection.cursor()
    cursor.execute("SELECT %s AS what, %d AS n, @@TRANCOUNT AS open_ones, DB_NAME() AS db", ("Ωmega", 42))
    say(row=[shown(value) for value in cursor.fetchone()])
    connection.commit()
    connection.autocommit(True)
    cursor.execute("BACKUP DATABASE shop TO DISK = %s", ("NUL",))
    cursor.callproc("sp_configure", ("media retention",))
    say(row=[shown(value) for value in cursor.fetchone()])
    connection.close()


def main():
    if os.environ.get("MODE") == "parameters":
        return parameters()
    try:
        connection = connect()
    except _mssql.MSSQLException as error:
        say(refused=str(error))
        sys.exit(3)
    connection.set_msghandler(heard)
    for text in json.load(sys.stdin):
        batch(connection, text)
        say(ended=True)
    connection.close()


main()
