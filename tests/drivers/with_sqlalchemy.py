"""SQLAlchemy: reflection and objects. Arguments: host and port of a server with an empty database."""

import datetime
import decimal
import sys

import sqlalchemy
from sqlalchemy import Date, DateTime, Integer, Numeric, String, create_engine, func, inspect, select, text, types
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

HOST, PORT = sys.argv[1], sys.argv[2]


class Base(DeclarativeBase):
    pass


class Meter(Base):
    __tablename__ = "meter"
    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    place: Mapped[str] = mapped_column(String, nullable=False)
    serial: Mapped[str] = mapped_column(String, unique=True, nullable=True)
    kwh: Mapped[decimal.Decimal] = mapped_column(Numeric(10, 3), nullable=True)
    since: Mapped[datetime.date] = mapped_column(Date, nullable=True)
    read_at: Mapped[datetime.datetime] = mapped_column(DateTime(timezone=True), nullable=True)


READ_AT = datetime.datetime(2024, 7, 1, 12, 30, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))


def reflects(engine):
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(
            "CREATE TABLE stock (shop INT, item VARCHAR, amount INT NOT NULL DEFAULT 7, price DECIMAL(8,2),"
            " label VARCHAR, seen TIMESTAMP, CONSTRAINT stock_key PRIMARY KEY (shop, item),"
            " CONSTRAINT label_once UNIQUE (label), CONSTRAINT amount_check CHECK (amount >= 0))"))
        connection.execute(text("CREATE INDEX stock_by_seen ON stock (seen, price)"))
    inspector = inspect(engine)
    assert inspector.default_schema_name == "public", inspector.default_schema_name
    assert set(inspector.get_table_names()) == {"meter", "stock"}, inspector.get_table_names()
    assert inspector.get_view_names() == []
    assert "public" in inspector.get_schema_names(), inspector.get_schema_names()
    assert inspector.has_table("stock") and not inspector.has_table("nothing")
    columns = {column["name"]: column for column in inspector.get_columns("stock")}
    assert list(columns) == ["shop", "item", "amount", "price", "label", "seen"], columns
    assert isinstance(columns["shop"]["type"], types.INTEGER) and not columns["shop"]["nullable"]
    assert isinstance(columns["price"]["type"], types.NUMERIC) and columns["price"]["nullable"]
    assert (columns["price"]["type"].precision, columns["price"]["type"].scale) == (8, 2)
    assert isinstance(columns["seen"]["type"], types.TIMESTAMP), columns["seen"]
    assert isinstance(columns["label"]["type"], (types.TEXT, types.VARCHAR)), columns["label"]
    assert columns["amount"]["default"] == "7", columns["amount"]
    read_at = {column["name"]: column for column in inspector.get_columns("meter")}["read_at"]
    assert isinstance(read_at["type"], types.TIMESTAMP) and read_at["type"].timezone, read_at
    key = inspector.get_pk_constraint("stock")
    assert (key["name"], key["constrained_columns"]) == ("stock_key", ["shop", "item"]), key
    unique = inspector.get_unique_constraints("stock")
    assert [(one["name"], one["column_names"]) for one in unique] == [("label_once", ["label"])], unique
    indexes = {index["name"]: index for index in inspector.get_indexes("stock")}
    assert indexes["stock_by_seen"]["column_names"] == ["seen", "price"], indexes
    assert not indexes["stock_by_seen"]["unique"] and indexes["label_once"]["unique"], indexes
    checks = inspector.get_check_constraints("stock")
    assert [(check["name"], check["sqltext"]) for check in checks] == [("amount_check", "amount >= 0")], checks
    assert inspector.get_foreign_keys("stock") == []
    assert inspector.get_table_comment("stock") == {"text": None}
    table = sqlalchemy.Table("stock", sqlalchemy.MetaData(), autoload_with=engine)
    assert [column.name for column in table.primary_key] == ["shop", "item"], table.primary_key
    metadata = sqlalchemy.MetaData()
    metadata.reflect(bind=engine)
    assert set(metadata.tables) == {"meter", "stock"}, metadata.tables


def maps(engine):
    with Session(engine) as session:
        session.add_all([
            Meter(id=1, place="cellar", serial="a", kwh=decimal.Decimal("17.500"), since=datetime.date(2024, 1, 1),
                  read_at=READ_AT),
            Meter(id=2, place="roof", serial="b"),
            Meter(id=3, place="roof"),
        ])
        session.commit()
    with Session(engine) as session:
        assert session.get(Meter, 1).read_at == READ_AT, session.get(Meter, 1).read_at
        assert session.scalar(select(Meter.id).where(Meter.read_at <= READ_AT)) == 1
        roof = session.scalars(select(Meter).where(Meter.place == "roof").order_by(Meter.id)).all()
        assert [meter.id for meter in roof] == [2, 3], roof
        roof[0].kwh = decimal.Decimal("3.250")
        session.commit()
        session.refresh(roof[0])
        assert roof[0].kwh == decimal.Decimal("3.250")
        session.get(Meter, 3).place = "garden"
        session.flush()
        assert session.scalar(select(func.count()).where(Meter.place == "garden")) == 1
        session.rollback()
        assert session.scalar(select(func.count()).where(Meter.place == "garden")) == 0
        total = session.execute(select(Meter.place, func.sum(Meter.kwh)).group_by(Meter.place).order_by(Meter.place)).all()
        assert [tuple(row) for row in total] == [("cellar", decimal.Decimal("17.500")), ("roof", decimal.Decimal("3.250"))]
        session.add(Meter(id=4, place="x", serial="a"))
        try:
            session.commit()
        except sqlalchemy.exc.IntegrityError as error:
            assert error.orig.sqlstate == "23505", error
            session.rollback()
        else:
            raise AssertionError("a duplicate was taken")
        session.delete(session.get(Meter, 3))
        session.commit()
        assert session.scalar(select(func.count()).select_from(Meter)) == 2
        found = session.scalars(select(Meter.id).where(Meter.id.in_([1, 2, 5])).order_by(Meter.id.desc())).all()
        assert found == [2, 1], found


def main():
    engine = create_engine(f"postgresql+psycopg://tester@{HOST}:{PORT}/entresol")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        Base.metadata.create_all(connection)
        # The second time it finds them.
        Base.metadata.create_all(connection)
    maps(engine)
    reflects(engine)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        Base.metadata.drop_all(connection)
    assert inspect(engine).get_table_names() == ["stock"]
    print("SQLAlchemy: all is well")


main()
