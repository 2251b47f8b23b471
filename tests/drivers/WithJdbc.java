import java.math.BigDecimal;
import java.sql.*;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;

/** JDBC as a user and a tool use it. Arguments: host and port of a server with an empty database. */
public class WithJdbc {
    static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    static void same(Object expected, Object found) {
        check(java.util.Objects.equals(expected, found), "expected " + expected + ", found " + found);
    }

    static String refused(Statement statement, String sql) {
        try {
            statement.execute(sql);
        } catch (SQLException error) {
            return error.getSQLState();
        }
        throw new AssertionError(sql + " was taken");
    }

    static List<String> column(ResultSet rows, String... names) throws SQLException {
        List<String> found = new ArrayList<>();
        while (rows.next()) {
            StringBuilder line = new StringBuilder();
            for (String name : names) {
                line.append(line.length() == 0 ? "" : " ").append(rows.getString(name));
            }
            found.add(line.toString());
        }
        rows.close();
        return found;
    }

    static void describes(Connection connection) throws SQLException {
        DatabaseMetaData data = connection.getMetaData();
        same("PostgreSQL", data.getDatabaseProductName());
        check(data.getDatabaseMajorVersion() >= 14, "version " + data.getDatabaseProductVersion());
        same(List.of("every null TABLE", "stock null TABLE"),
            column(data.getTables(null, "public", "%", new String[] {"TABLE"}), "TABLE_NAME", "REMARKS", "TABLE_TYPE"));
        check(column(data.getTables(null, "pg_catalog", "pg_class", null), "TABLE_NAME").contains("pg_class"), "pg_class");
        check(column(data.getSchemas(), "TABLE_SCHEM").contains("public"), "schemas");
        same(List.of("entresol"), column(data.getCatalogs(), "TABLE_CAT"));
        same(List.of("shop int4 4 10 NO null", "item text 12 2147483647 NO null", "amount int4 4 10 NO 7",
                "price numeric 2 8 YES null", "label text 12 2147483647 YES null"),
            column(data.getColumns(null, "public", "stock", "%"),
                "COLUMN_NAME", "TYPE_NAME", "DATA_TYPE", "COLUMN_SIZE", "IS_NULLABLE", "COLUMN_DEF"));
        same(List.of("shop 1 stock_key", "item 2 stock_key"),
            column(data.getPrimaryKeys(null, "public", "stock"), "COLUMN_NAME", "KEY_SEQ", "PK_NAME"));
        same(List.of("label_once 1 label f", "stock_key 1 shop f", "stock_key 2 item f", "by_price 1 price t"),
            column(data.getIndexInfo(null, "public", "stock", false, false),
                "INDEX_NAME", "ORDINAL_POSITION", "COLUMN_NAME", "NON_UNIQUE"));
        same(List.of(), column(data.getImportedKeys(null, "public", "stock"), "FKTABLE_NAME"));
        same(List.of(), column(data.getExportedKeys(null, "public", "stock"), "FKTABLE_NAME"));
        check(column(data.getTypeInfo(), "TYPE_NAME").contains("int4"), "types");
        check(column(data.getTableTypes(), "TABLE_TYPE").contains("TABLE"), "table types");
        check(data.getSQLKeywords() != null, "keywords");
        column(data.getFunctions(null, "public", "%"), "FUNCTION_NAME");
        column(data.getProcedures(null, "public", "%"), "PROCEDURE_NAME");
        column(data.getTablePrivileges(null, "public", "stock"), "PRIVILEGE");
        same(List.of("item", "shop"), column(data.getBestRowIdentifier(null, "public", "stock",
            DatabaseMetaData.bestRowSession, false), "COLUMN_NAME").stream().sorted().toList());
        try (Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery("SELECT price, amount AS n FROM stock")) {
            ResultSetMetaData columns = rows.getMetaData();
            same("price", columns.getColumnName(1));
            same("n", columns.getColumnLabel(2));
            same(Types.NUMERIC, columns.getColumnType(1));
            same(2, columns.getScale(1));
        }
    }

    static void values(Connection connection, boolean binary) throws SQLException {
        String insert = "INSERT INTO every VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
        try (PreparedStatement statement = connection.prepareStatement(insert)) {
            for (int id = 1; id <= 20; id++) {
                statement.setInt(1, id);
                statement.setLong(2, (1L << 40) + id);
                statement.setBoolean(3, id % 2 == 0);
                statement.setDouble(4, id / 4.0);
                statement.setBigDecimal(5, new BigDecimal(id + ".25"));
                statement.setObject(6, LocalDate.of(2024, 2, id));
                statement.setTimestamp(7, Timestamp.valueOf(LocalDateTime.of(2024, 1, id, 12, 30, 0, 123456000)));
                statement.setString(8, "row " + id);
                statement.addBatch();
            }
            same(20, statement.executeBatch().length);
            statement.setInt(1, 21);
            int[] kinds = {Types.BIGINT, Types.BOOLEAN, Types.DOUBLE, Types.NUMERIC, Types.DATE, Types.TIMESTAMP,
                Types.VARCHAR};
            for (int at = 0; at < kinds.length; at++) {
                statement.setNull(at + 2, kinds[at]);
            }
            same(1, statement.executeUpdate());
        }
        // Often enough for a statement on the server, and for binary values.
        try (PreparedStatement statement = connection.prepareStatement("SELECT * FROM every WHERE id = ?")) {
            for (int id = 1; id <= 20; id++) {
                statement.setInt(1, id);
                try (ResultSet row = statement.executeQuery()) {
                    check(row.next(), "row " + id + (binary ? " in binary" : ""));
                    same((1L << 40) + id, row.getLong("big"));
                    same(id % 2 == 0, row.getBoolean("flag"));
                    same(id / 4.0, row.getDouble("ratio"));
                    same(new BigDecimal(id + ".25"), row.getBigDecimal("price"));
                    same(LocalDate.of(2024, 2, id), row.getObject("day", LocalDate.class));
                    same(LocalDateTime.of(2024, 1, id, 12, 30, 0, 123456000), row.getObject("at", LocalDateTime.class));
                    same("row " + id, row.getString("note"));
                }
            }
            statement.setInt(1, 21);
            try (ResultSet row = statement.executeQuery()) {
                check(row.next(), "the row of NULLs");
                same(null, row.getObject("price"));
                row.getInt("big");
                check(row.wasNull(), "NULL");
            }
        }
        try (PreparedStatement statement = connection.prepareStatement("SELECT count(*) FROM every WHERE at > ? AND price < ?")) {
            statement.setTimestamp(1, Timestamp.valueOf(LocalDateTime.of(2024, 1, 10, 0, 0)));
            statement.setBigDecimal(2, new BigDecimal("15"));
            try (ResultSet row = statement.executeQuery()) {
                row.next();
                same(5, row.getInt(1));
            }
        }
        try (PreparedStatement statement =
                connection.prepareStatement("UPDATE every SET note = ? WHERE id < ?")) {
            statement.setString(1, "changed");
            statement.setInt(2, 4);
            same(3, statement.executeUpdate());
        }
        try (PreparedStatement statement = connection.prepareStatement(
                "INSERT INTO every (id, note) VALUES (?, ?)", Statement.RETURN_GENERATED_KEYS)) {
            statement.setInt(1, 99);
            statement.setString(2, "made");
            statement.executeUpdate();
            try (ResultSet keys = statement.getGeneratedKeys()) {
                check(keys.next(), "what was made");
                same(99, keys.getInt("id"));
            }
        }
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("DELETE FROM every");
        }
    }

    static void transactions(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("INSERT INTO every (id) VALUES (1)");
            connection.rollback();
            statement.executeUpdate("INSERT INTO every (id) VALUES (2)");
            Savepoint savepoint = connection.setSavepoint("s");
            same("23505", refused(statement, "INSERT INTO every (id) VALUES (2)"));
            same("25P02", refused(statement, "SELECT 1"));
            connection.rollback(savepoint);
            connection.commit();
            same(List.of("2"), column(statement.executeQuery("SELECT id FROM every"), "id"));
            for (int id = 100; id < 400; id++) {
                statement.addBatch("INSERT INTO every (id) VALUES (" + id + ")");
            }
            statement.executeBatch();
            connection.commit();
            // In parts, through a portal.
            statement.setFetchSize(50);
            same(301, column(statement.executeQuery("SELECT id FROM every ORDER BY id"), "id").size());
            connection.commit();
            for (int level : new int[] {Connection.TRANSACTION_READ_COMMITTED, Connection.TRANSACTION_SERIALIZABLE}) {
                connection.setTransactionIsolation(level);
                same(level, connection.getTransactionIsolation());
            }
            connection.setReadOnly(true);
            same("25006", refused(statement, "DELETE FROM every"));
            connection.rollback();
            connection.setReadOnly(false);
        }
        connection.setAutoCommit(true);
        try (Statement statement = connection.createStatement()) {
            same("42P01", refused(statement, "SELECT * FROM nothing"));
            same("42601", refused(statement, "SELEKT 1"));
            same("22012", refused(statement, "SELECT 1 / 0"));
            statement.setQueryTimeout(1);
            String slow = "SELECT count(*) FROM generate_series(1, 1000000000000) WHERE value % 7 = 3";
            same("57014", refused(statement, slow));
        }
    }

    static void moments(Connection connection) throws SQLException {
        OffsetDateTime at = OffsetDateTime.of(2024, 7, 1, 12, 30, 0, 250000000, ZoneOffset.ofHours(2));
        try (Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE moment (at TIMESTAMPTZ PRIMARY KEY, name TEXT)");
        }
        try (PreparedStatement statement = connection.prepareStatement("INSERT INTO moment VALUES (?, ?)")) {
            for (int day = 0; day < 10; day++) {
                statement.setObject(1, at.plusDays(day));
                statement.setString(2, "day " + day);
                same(1, statement.executeUpdate());
            }
            statement.setTimestamp(1, Timestamp.from(at.plusDays(10).toInstant()));
            statement.setString(2, "day 10");
            same(1, statement.executeUpdate());
        }
        try (PreparedStatement statement = connection.prepareStatement("SELECT at, name FROM moment WHERE at = ?")) {
            for (int day = 0; day < 11; day++) {
                statement.setObject(1, at.plusDays(day).withOffsetSameInstant(ZoneOffset.ofHours(-5)));
                try (ResultSet row = statement.executeQuery()) {
                    check(row.next(), "the moment of day " + day);
                    same("day " + day, row.getString("name"));
                    same(at.plusDays(day).toInstant(), row.getObject("at", OffsetDateTime.class).toInstant());
                    same(at.plusDays(day).toInstant(), row.getTimestamp("at").toInstant());
                }
            }
        }
        try (ResultSet columns = connection.getMetaData().getColumns(null, "public", "moment", "at")) {
            check(columns.next(), "the column of moments");
            same("timestamptz", columns.getString("TYPE_NAME"));
        }
        try (Statement statement = connection.createStatement()) {
            statement.execute("DROP TABLE moment");
        }
    }

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("user", "tester");
        String url = "jdbc:postgresql://" + arguments[0] + ":" + arguments[1] + "/entresol";
        try (Connection connection = DriverManager.getConnection(url, properties);
                Statement statement = connection.createStatement()) {
            statement.execute("CREATE TABLE every (id INT PRIMARY KEY, big BIGINT, flag BOOLEAN,"
                + " ratio DOUBLE PRECISION, price DECIMAL(10,2), day DATE, at TIMESTAMP, note VARCHAR)");
            statement.execute("CREATE TABLE stock (shop INT, item VARCHAR, amount INT NOT NULL DEFAULT 7,"
                + " price DECIMAL(8,2), label VARCHAR, CONSTRAINT stock_key PRIMARY KEY (shop, item),"
                + " CONSTRAINT label_once UNIQUE (label))");
            statement.execute("CREATE INDEX by_price ON stock (price)");
            describes(connection);
            values(connection, true);
            moments(connection);
            transactions(connection);
        }
        properties.setProperty("preferQueryMode", "simple");
        try (Connection connection = DriverManager.getConnection(url, properties)) {
            connection.createStatement().executeUpdate("DELETE FROM every");
            values(connection, false);
            moments(connection);
        }
        System.out.println("JDBC: all is well");
    }
}
