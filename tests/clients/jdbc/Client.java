// The witness mssql-jdbc, Microsoft's driver for Java: see ../README.md.

import com.microsoft.sqlserver.jdbc.ISQLServerMessage;
import com.microsoft.sqlserver.jdbc.SQLServerConnection;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.sql.CallableStatement;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.text.SimpleDateFormat;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;

public final class Client {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    /** Errors that the handler of messages was shown: they come again as exceptions. */
    private static final Set<String> HEARD = new HashSet<>();
    /** What to do at the first message; null: nothing. */
    private static Runnable first;

    private static void say(String... namesAndJson) {
        StringBuilder line = new StringBuilder("{");
        for (int i = 0; i < namesAndJson.length; i += 2) {
            line.append(i == 0 ? "" : ", ").append(quoted(namesAndJson[i])).append(": ").append(namesAndJson[i + 1]);
        }
        OUT.println(line.append('}'));
    }

    private static String quoted(String text) {
        if (text == null) {
            return "null";
        }
        StringBuilder json = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                json.append('\\').append(c);
            } else if (c < ' ') {
                json.append(String.format("\\u%04x", (int) c));
            } else {
                json.append(c);
            }
        }
        return json.append('"').toString();
    }

    private static String list(List<String> texts) {
        StringBuilder json = new StringBuilder("[");
        for (String text : texts) {
            json.append(json.length() > 1 ? ", " : "").append(quoted(text));
        }
        return json.append(']').toString();
    }

    /** An array of texts in JSON, as the tests write it. */
    private static List<String> texts(String json) {
        List<String> all = new ArrayList<>();
        StringBuilder text = null;
        for (int i = 0; i < json.length(); i++) {
            char c = json.charAt(i);
            if (c == '"') {
                if (text != null) {
                    all.add(text.toString());
                }
                text = text == null ? new StringBuilder() : null;
            } else if (text != null && c == '\\') {
                char kind = json.charAt(++i);
                switch (kind) {
                    case 'n': text.append('\n'); break;
                    case 'r': text.append('\r'); break;
                    case 't': text.append('\t'); break;
                    case 'u':
                        text.append((char) Integer.parseInt(json.substring(i + 1, i + 5), 16));
                        i += 4;
                        break;
                    default: text.append(kind);
                }
            } else if (text != null) {
                text.append(c);
            }
        }
        return all;
    }

    private static String shown(ResultSet row, int column, int type) throws SQLException {
        switch (type) {
            case Types.TIMESTAMP:
                Timestamp at = row.getTimestamp(column);
                return at == null ? null : new SimpleDateFormat("yyyy-MM-dd HH:mm:ss.SSS").format(at);
            case Types.BIT:
                boolean bit = row.getBoolean(column);
                return row.wasNull() ? null : bit ? "1" : "0";
            case Types.BINARY:
            case Types.VARBINARY:
                String hex = row.getString(column);
                return hex == null ? null : "0x" + hex;
            default:
                return row.getString(column);
        }
    }

    private static void heard(int number, int severity, int state, long line, String text) {
        say("message", quoted(text), "number", "" + number, "class", "" + severity, "state", "" + state, "line", "" + line);
    }

    private static ISQLServerMessage onMessage(ISQLServerMessage message) {
        heard(message.getErrorNumber(), message.getErrorSeverity(), message.getErrorState(), message.getLineNumber(),
                message.getErrorMessage());
        if (message.isErrorMessage()) {
            HEARD.add(message.getErrorMessage());
        }
        if (first != null) {
            Runnable now = first;
            first = null;
            now.run();
        }
        return message;
    }

    /** Errors were told when they were heard; what the driver says of itself was not. */
    private static void failed(SQLException error) {
        // The driver may put words of its own before them.
        String said = String.valueOf(error.getMessage());
        if (HEARD.stream().noneMatch(said::endsWith) && !"HY008".equals(error.getSQLState())) {
            say("lost", quoted(error.toString()));
        }
    }

    private static void rows(ResultSet set) throws SQLException {
        ResultSetMetaData about = set.getMetaData();
        List<String> names = new ArrayList<>();
        for (int i = 1; i <= about.getColumnCount(); i++) {
            names.add(about.getColumnLabel(i));
        }
        say("columns", list(names));
        while (set.next()) {
            List<String> row = new ArrayList<>();
            for (int i = 1; i <= names.size(); i++) {
                row.add(shown(set, i, about.getColumnType(i)));
            }
            say("row", list(row));
        }
        say("done", "null");
    }

    private static void batch(Statement statement, String text) {
        boolean begun = false;
        while (true) {
            try {
                boolean isSet = begun ? statement.getMoreResults() : statement.execute(text);
                begun = true;
                if (isSet) {
                    rows(statement.getResultSet());
                } else if (statement.getUpdateCount() == -1) {
                    return;
                }
            } catch (SQLException error) {
                begun = true;
                failed(error);
                if (statementIsOver(statement, error)) {
                    return;
                }
            }
        }
    }

    private static boolean statementIsOver(Statement statement, SQLException error) {
        try {
            return statement.isClosed() || statement.getConnection().isClosed() || "HY008".equals(error.getSQLState());
        } catch (SQLException gone) {
            return true;
        }
    }

    private static void parameters(SQLServerConnection connection) throws SQLException {
        try (PreparedStatement asked = connection.prepareStatement("SELECT ? AS what, ? * 2 AS n, ? AS at")) {
            asked.setString(1, "Ωmega");
            asked.setInt(2, 21);
            asked.setTimestamp(3, Timestamp.valueOf("2026-03-01 22:15:04.120"));
            // The second time the driver prepares it.
            for (int i = 0; i < 3; i++) {
                rows(asked.executeQuery());
            }
        }
        try (PreparedStatement backup = connection.prepareStatement("BACKUP DATABASE shop TO DISK = ?")) {
            for (String device : new String[] {"NUL", "prepared.bak"}) {
                backup.setString(1, device);
                backup.execute();
                say("done", "null");
            }
        }
        try (CallableStatement call = connection.prepareCall("{call sp_configure(?)}")) {
            call.setString(1, "media retention");
            rows(call.executeQuery());
        }
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            rows(statement.executeQuery("SELECT @@TRANCOUNT AS none"));
            rows(statement.executeQuery("SELECT COUNT(*) AS one FROM sys.configurations WHERE 1 = 0"));
            rows(statement.executeQuery("SELECT @@TRANCOUNT AS open_ones"));
        }
        connection.commit();
        connection.setAutoCommit(true);
    }

    public static void main(String[] arguments) throws Exception {
        Properties how = new Properties();
        how.setProperty("user", System.getenv("TDS_USER"));
        how.setProperty("password", System.getenv("TDS_PASSWORD"));
        how.setProperty("encrypt", "off".equals(System.getenv("TDS_ENCRYPT")) ? "false" : "true");
        how.setProperty("trustServerCertificate", "true");
        if ("strict".equals(System.getenv("TDS_ENCRYPT"))) {
            how.setProperty("encrypt", "strict");
            how.setProperty("serverCertificate", System.getenv("TDS_CERTIFICATE"));
        }
        SQLServerConnection connection;
        try {
            String url = "jdbc:sqlserver://127.0.0.1:" + System.getenv("TDS_PORT");
            connection = (SQLServerConnection) DriverManager.getConnection(url, how);
        } catch (SQLException error) {
            say("refused", quoted(error.getMessage()));
            System.exit(3);
            return;
        }
        connection.setServerMessageHandler(Client::onMessage);
        String mode = System.getenv("MODE");
        if ("parameters".equals(mode)) {
            parameters(connection);
            connection.close();
            return;
        }
        String input = new String(System.in.readAllBytes(), StandardCharsets.UTF_8);
        List<String> texts = texts(input);
        for (int i = 0; i < texts.size(); i++) {
            try (Statement statement = connection.createStatement()) {
                if ("cancel".equals(mode) && i == 0) {
                    // From another thread: the one that reads hears the message.
                    first = () -> new Thread(() -> cancel(statement)).start();
                }
                batch(statement, texts.get(i));
            }
            say("ended", "true");
        }
        connection.close();
    }

    private static void cancel(Statement statement) {
        try {
            statement.cancel();
        } catch (SQLException error) {
            say("lost", quoted(error.toString()));
        }
    }
}
