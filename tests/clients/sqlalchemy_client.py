"""The witness SQLAlchemy, over pymssql or over pyodbc with the driver that DRIVER names: see README.md.

Method: tables made, inspected, changed and reflected, and a line of JSON for each step.
Leaves to others: what is right (crates/longshore/tests/serve).
"""

import decimal
import json
import os

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


def say(step, value):
    print(json.dumps({"step": step, "value": value}, default=str), flush=True)


def engine():
    who = {
        "username": os.environ["TDS_USER"],
        "password": os.environ["TDS_PASSWORD"],
        "host": "127.0.0.1",
        "port": int(os.environ["TDS_PORT"]),
        "database": "shop",
    }
    driver = os.environ.get("DRIVER")
    if not driver:
        return sa.create_engine(sa.URL.create("mssql+pymssql", **who))
    query = {"driver": driver, "Encrypt": "optional"}
    if "msodbcsql" not in driver:
        query |= {"TDS_Version": "7.4", "ClientCharset": "UTF-8", "port": str(who["port"])}
    return sa.create_engine(sa.URL.create("mssql+pyodbc", query=query, **who))


class Base(DeclarativeBase):
    pass


class Ledger(Base):
    __tablename__ = "ledger"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(sa.Unicode(40))
    amount: Mapped[decimal.Decimal | None] = mapped_column(sa.Numeric(10, 2))


class Entry(Base):
    __tablename__ = "entry"
    id: Mapped[int] = mapped_column(primary_key=True)
    ledger: Mapped[int] = mapped_column(sa.ForeignKey("ledger.id", name="of_ledger"))


def inspected(known):
    inspector = sa.inspect(known)
    say("schema", inspector.default_schema_name)
    say("tables", sorted(inspector.get_table_names()))
    say("columns", [[c["name"], str(c["type"]).split(" ")[0], c["nullable"]] for c in inspector.get_columns("ledger")])
    say("primary", inspector.get_pk_constraint("ledger")["constrained_columns"])
    say("foreign", [[k["name"], k["referred_table"], k["constrained_columns"]] for k in inspector.get_foreign_keys("entry")])
    say("indexes", inspector.get_indexes("ledger"))
    say("has", [inspector.has_table("ledger"), inspector.has_table("nowhere")])


def stored(known):
    with Session(known) as session:
        session.add_all([Ledger(name=f"Ω{i}", amount=i) for i in range(5)])
        session.commit()
        first = session.scalars(sa.select(Ledger).order_by(Ledger.id)).first()
        first.name = "changed"
        session.commit()
        pages = sa.select(Ledger.name).order_by(Ledger.id).limit(2).offset(1)
        say("page", list(session.scalars(pages)))
        say("first", session.get(Ledger, first.id).name)


def undone(known):
    with known.begin() as connection:
        count = lambda: connection.scalar(sa.select(sa.func.count()).select_from(Ledger))
        inner = connection.begin_nested()
        connection.execute(sa.delete(Ledger))
        none = count()
        inner.rollback()
        say("savepoint", [none, count()])
    connection = known.connect()
    connection.execute(sa.delete(Ledger))
    connection.rollback()
    say("rollback", connection.scalar(sa.select(sa.func.count()).select_from(Ledger)))
    connection.close()


def main():
    known = engine()
    # Tables are made and dropped outside of transactions.
    outside = known.execution_options(isolation_level="AUTOCOMMIT")
    Base.metadata.create_all(outside)
    inspected(known)
    stored(known)
    undone(known)
    with outside.connect() as connection:
        connection.execute(sa.text("BACKUP DATABASE shop TO DISK = 'alchemy.bak' WITH FORMAT"))
    reflected = sa.MetaData()
    reflected.reflect(known)
    say("reflected", sorted(reflected.tables))
    Base.metadata.drop_all(outside)
    say("dropped", sa.inspect(known).get_table_names())


main()
