"""The witnesses over ODBC: pyodbc with FreeTDS's driver and with Microsoft's, see README.md.

DRIVER names the library of the driver. Runs one session and writes what each step of it got.

Method: one session, and a line of JSON for each step of it.
Leaves to others: what is right (crates/longshore/tests/serve).
"""

import datetime
import decimal
import json
import os
import threading
import time

import pyodbc


def say(step, value):
    print(json.dumps({"step": step, "value": value}, default=str), flush=True)


def connect(**more):
    host = "SERVER=127.0.0.1,{};" if "msodbcsql" in os.environ["DRIVER"] else "SERVER=127.0.0.1;PORT={};TDS_Version=7.4;"
    password = os.environ["TDS_PASSWORD"].replace("}", "}}")
    text = (
        f"DRIVER={os.environ['DRIVER']};{host.format(os.environ['TDS_PORT'])}"
        f"UID={os.environ['TDS_USER']};PWD={{{password}}};DATABASE=shop;ClientCharset=UTF-8;"
        f"Encrypt={os.environ.get('TDS_ENCRYPT', 'optional')};TrustServerCertificate=yes"
    )
    return pyodbc.connect(text, **more)


def metadata(cursor):
    say("tables", [tuple(row)[:4] for row in cursor.tables(table="ledger")])
    say("databases", [row[0] for row in cursor.tables(catalog="%", schema="", table="")])
    say("kinds", [row[3] for row in cursor.tables(catalog="", schema="", table="", tableType="%")])
    say("columns", [[row[3], row[4], row[5], row[6], row[10]] for row in cursor.columns(table="ledger")])
    say("primary", [[row[3], row[4]] for row in cursor.primaryKeys(table="ledger")])
    say("foreign", [[row[3], row[7]] for row in cursor.foreignKeys(table="ledger")])
    say("statistics", [[row[5], row[8]] for row in cursor.statistics("ledger") if row[5]])
    say("best", [row[1] for row in cursor.rowIdColumns("ledger")])
    say("types", len([row[0] for row in cursor.getTypeInfo()]) > 20)
    say("procedures", [row[2] for row in cursor.procedures(procedure="doubled")])
    say("parameters", [[row[3], row[4], row[5]] for row in cursor.procedureColumns(procedure="doubled")])


def rows(cursor):
    cursor.execute(
        "INSERT dbo.ledger (name, amount, at, bytes) VALUES (?, ?, ?, ?)",
        "Ωmega", decimal.Decimal("1.50"), datetime.datetime(2026, 3, 1, 22, 15, 4), b"abc",
    )
    cursor.executemany("INSERT dbo.ledger (name, amount) VALUES (?, ?)", [(f"n{i}", i) for i in range(9)])
    cursor.execute("SELECT name, amount, at, bytes FROM dbo.ledger ORDER BY id")
    first, rest = cursor.fetchmany(1), cursor.fetchmany(4)
    say("row", [str(first[0][0]), str(first[0][1]), str(first[0][2]), first[0][3].decode()])
    say("pieces", [len(rest), len(cursor.fetchall())])
    say("call", [row[0] for row in cursor.execute("{CALL sp_configure (?)}", "show advanced options")])


def transactions():
    connection = connect(autocommit=False)
    cursor = connection.cursor()
    count = lambda: cursor.execute("SELECT COUNT(*) FROM dbo.ledger").fetchone()[0]
    cursor.execute("DELETE dbo.ledger WHERE id > 5")
    cursor.execute("SAVE TRANSACTION half")
    cursor.execute("DELETE dbo.ledger")
    cursor.execute("ROLLBACK TRANSACTION half")
    inside = count()
    connection.rollback()
    say("transaction", [inside, count()])
    connection.close()


def backup(cursor):
    cursor.execute("BACKUP DATABASE shop TO DISK = 'odbc.bak' WITH FORMAT, STATS = 50")
    heard = [text for _, text in cursor.messages]
    while cursor.nextset():
        heard += [text for _, text in cursor.messages]
    say("backup", heard[-1].split("]")[-1])


def cancel(connection, cursor):
    threading.Timer(0.3, cursor.cancel).start()
    begun = time.monotonic()
    try:
        cursor.execute("WAITFOR DELAY '00:00:30'")
        say("cancelled", None)
    except pyodbc.Error:
        say("cancelled", time.monotonic() - begun < 10)
    say("after", connection.cursor().execute("SELECT 7").fetchone()[0])


def main():
    connection = connect(autocommit=True)
    cursor = connection.cursor()
    cursor.execute(
        "CREATE TABLE dbo.ledger (id int IDENTITY PRIMARY KEY, name nvarchar(40) NOT NULL, amount decimal(10, 2), "
        "at datetime2, bytes varbinary(100))"
    )
    cursor.execute("CREATE TABLE dbo.entry (ledger int REFERENCES dbo.ledger (id))")
    cursor.execute("CREATE PROCEDURE dbo.doubled @a int, @b int OUTPUT AS SET @b = @a * 2")
    metadata(cursor)
    rows(cursor)
    transactions()
    backup(cursor)
    cancel(connection, cursor)
    try:
        cursor.execute("SELECT * FROM nowhere")
    except pyodbc.Error as error:
        say("error", "208" in error.args[1] and "Invalid object name 'nowhere'." in error.args[1])


main()
