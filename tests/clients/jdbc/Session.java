// A session of JDBC as tools have it: metadata, generated keys, rows in pieces, savepoints. Over Microsoft's driver and jTDS, by
// their URLs: see ../README.md.

import java.sql.CallableStatement;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.ParameterMetaData;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Types;
import java.util.ArrayList;
import java.util.List;

public final class Session {
    private interface Step {
        Object value() throws SQLException;
    }

    private static void say(String step, Step what) {
        String value;
        try {
            value = String.valueOf(what.value());
        } catch (SQLException | RuntimeException error) {
            value = "failed: " + error.getMessage();
        }
        String text = value.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n");
        System.out.println("{\"step\": \"" + step + "\", \"value\": \"" + text + "\"}");
    }

    /** These columns of all rows. */
    private static List<String> rows(ResultSet set, int... columns) throws SQLException {
        List<String> all = new ArrayList<>();
        while (set.next()) {
            List<String> row = new ArrayList<>();
            for (int column : columns) {
                row.add(set.getString(column));
            }
            all.add(String.join("/", row));
        }
        set.close();
        return all;
    }

    private static void metadata(DatabaseMetaData about) {
        say("catalogs", () -> rows(about.getCatalogs(), 1));
        say("tables", () -> rows(about.getTables(null, null, "ledger", null), 1, 2, 3, 4));
        say("kinds", () -> rows(about.getTableTypes(), 1));
        say("columns", () -> rows(about.getColumns(null, null, "ledger", "%"), 4, 6, 7, 11));
        say("primary", () -> rows(about.getPrimaryKeys(null, "dbo", "ledger"), 4, 5));
        say("imported", () -> rows(about.getImportedKeys(null, "dbo", "entry"), 3, 4, 7, 8));
        say("exported", () -> rows(about.getExportedKeys(null, "dbo", "ledger"), 3, 4, 7, 8));
        say("indexes", () -> rows(about.getIndexInfo(null, "dbo", "ledger", true, false), 4, 9));
        say("best", () -> rows(about.getBestRowIdentifier(null, "dbo", "ledger", 0, true), 2));
        say("types", () -> rows(about.getTypeInfo(), 1).contains("nvarchar"));
        say("procedures", () -> rows(about.getProcedures(null, null, "doubled"), 3));
        say("parameters", () -> rows(about.getProcedureColumns(null, null, "doubled", "%"), 4, 5));
        say("privileges", () -> rows(about.getTablePrivileges(null, "dbo", "ledger"), 6).size());
    }

    private static void statements(Connection connection) {
        say("keys", () -> {
            String text = "INSERT dbo.ledger (name, amount) VALUES (?, ?)";
            PreparedStatement insert = connection.prepareStatement(text, Statement.RETURN_GENERATED_KEYS);
            List<String> keys = new ArrayList<>();
            for (int i = 0; i < 9; i++) {
                insert.setString(1, "Ω" + i);
                insert.setInt(2, i);
                insert.executeUpdate();
                keys.addAll(rows(insert.getGeneratedKeys(), 1));
            }
            return keys;
        });
        say("described", () -> {
            PreparedStatement asked = connection.prepareStatement("SELECT id, name FROM dbo.ledger WHERE amount = ?");
            ResultSetMetaData columns = asked.getMetaData();
            ParameterMetaData parameters = asked.getParameterMetaData();
            return columns.getColumnTypeName(1) + " " + columns.getColumnTypeName(2) + " "
                    + parameters.getParameterTypeName(1);
        });
        say("limited", () -> {
            Statement limited = connection.createStatement();
            limited.setMaxRows(3);
            int some = rows(limited.executeQuery("SELECT id FROM dbo.ledger"), 1).size();
            limited.setMaxRows(0);
            return some + " " + rows(limited.executeQuery("SELECT id FROM dbo.ledger"), 1).size();
        });
        say("called", () -> {
            CallableStatement call = connection.prepareCall("{? = call dbo.doubled(?, ?)}");
            call.registerOutParameter(1, Types.INTEGER);
            call.setInt(2, 21);
            call.registerOutParameter(3, Types.INTEGER);
            call.execute();
            return call.getInt(1) + " " + call.getInt(3);
        });
    }

    private static void transactions(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        Statement statement = connection.createStatement();
        say("savepoints", () -> {
            statement.executeUpdate("DELETE dbo.ledger WHERE id > 5");
            Savepoint half = connection.setSavepoint("half");
            statement.executeUpdate("DELETE dbo.ledger");
            connection.rollback(half);
            int inside = rows(statement.executeQuery("SELECT id FROM dbo.ledger"), 1).size();
            connection.rollback();
            return inside + " " + rows(statement.executeQuery("SELECT id FROM dbo.ledger"), 1).size();
        });
        connection.commit();
        connection.setAutoCommit(true);
    }

    private static void scrolled(Connection connection) {
        say("scrolled", () -> {
            Statement asked = connection.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY);
            ResultSet set = asked.executeQuery("SELECT id FROM dbo.ledger ORDER BY id");
            set.last();
            return set.getRow();
        });
    }

    public static void main(String[] arguments) throws SQLException {
        Connection connection;
        try {
            String url = System.getenv("JDBC_URL");
            connection = DriverManager.getConnection(url, System.getenv("TDS_USER"), System.getenv("TDS_PASSWORD"));
        } catch (SQLException error) {
            say("refused", () -> error.getMessage());
            System.exit(3);
            return;
        }
        Statement statement = connection.createStatement();
        statement.execute("CREATE TABLE dbo.ledger (id int IDENTITY PRIMARY KEY, name nvarchar(40) NOT NULL, "
                + "amount decimal(10, 2), at datetime2)");
        statement.execute("CREATE TABLE dbo.entry (ledger int REFERENCES dbo.ledger (id))");
        statement.execute("CREATE PROCEDURE dbo.doubled @a int, @b int OUTPUT AS SET @b = @a * 2; RETURN 7");
        metadata(connection.getMetaData());
        statements(connection);
        transactions(connection);
        scrolled(connection);
        connection.close();
    }
}
