// The witness go-mssqldb, the driver of go-sqlcmd: see README.md.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/golang-sql/sqlexp"
	mssql "github.com/microsoft/go-mssqldb"
)

type event map[string]any

func say(e event) {
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func shown(value any, kind string) any {
	switch v := value.(type) {
	case nil:
		return nil
	case bool:
		if v {
			return "1"
		}
		return "0"
	case time.Time:
		return v.Format("2006-01-02 15:04:05.000")
	case []byte:
		switch kind {
		case "UNIQUEIDENTIFIER":
			var id mssql.UniqueIdentifier
			if err := id.Scan(v); err == nil {
				return id.String()
			}
		case "DECIMAL", "NUMERIC":
			return string(v)
		}
		return fmt.Sprintf("0x%X", v)
	default:
		return fmt.Sprint(v)
	}
}

func heard(err error) {
	var m mssql.Error
	if errors.As(err, &m) {
		say(event{"message": m.Message, "number": m.Number, "class": m.Class, "state": m.State, "line": m.LineNo})
		return
	}
	say(event{"lost": err.Error()})
}

// One batch with all its results, as go-sqlcmd reads them.
func batch(ctx context.Context, db *sql.Conn, text string, first func()) {
	messages := &sqlexp.ReturnMessage{}
	rows, err := db.QueryContext(ctx, text, messages)
	if err != nil {
		heard(err)
		return
	}
	defer rows.Close()
	results := true
	open := false
	for results {
		switch m := messages.Message(ctx).(type) {
		case sqlexp.MsgNotice:
			if notice, ok := m.Message.(mssql.Error); ok {
				heard(notice)
			} else {
				say(event{"message": m.Message.String()})
			}
			first()
		case sqlexp.MsgError:
			heard(m.Error)
		case sqlexp.MsgRowsAffected:
			say(event{"done": m.Count})
			open = false
		case sqlexp.MsgNextResultSet:
			if open {
				say(event{"done": nil})
			}
			open = false
			results = rows.NextResultSet()
		case sqlexp.MsgNext:
			open = true
			columns, _ := rows.ColumnTypes()
			names := []string{}
			for _, c := range columns {
				names = append(names, c.Name())
			}
			say(event{"columns": names})
			for rows.Next() {
				values := make([]any, len(columns))
				places := make([]any, len(columns))
				for i := range values {
					places[i] = &values[i]
				}
				if err := rows.Scan(places...); err != nil {
					heard(err)
					return
				}
				row := []any{}
				for i, v := range values {
					row = append(row, shown(v, columns[i].DatabaseTypeName()))
				}
				say(event{"row": row})
			}
		}
	}
	if err := rows.Err(); err != nil && !errors.Is(err, context.Canceled) {
		heard(err)
	}
}

func parameters(ctx context.Context, db *sql.Conn) {
	var n int64 = 21
	var what string
	var at time.Time
	row := db.QueryRowContext(ctx, "SELECT @what AS what, @n * 2 AS n, @at AS at",
		sql.Named("what", "Ωmega"), sql.Named("n", n),
		sql.Named("at", time.Date(2026, 3, 1, 22, 15, 4, 120e6, time.UTC)))
	if err := row.Scan(&what, &n, &at); err != nil {
		heard(err)
		return
	}
	say(event{"row": []any{what, fmt.Sprint(n), shown(at, "")}})
	prepared, err := db.PrepareContext(ctx, "BACKUP DATABASE shop TO DISK = @p1")
	if err != nil {
		heard(err)
		return
	}
	for _, device := range []string{"NUL", "prepared.bak"} {
		if _, err := prepared.ExecContext(ctx, device); err != nil {
			heard(err)
			return
		}
		say(event{"done": nil})
	}
	prepared.Close()
	if _, err := db.ExecContext(ctx, "sp_configure", sql.Named("configname", "media retention")); err != nil {
		heard(err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		heard(err)
		return
	}
	if err := tx.QueryRow("SELECT @@TRANCOUNT").Scan(&n); err == nil {
		say(event{"row": []any{fmt.Sprint(n)}})
	}
	if err := tx.Commit(); err != nil {
		heard(err)
	}
}

func main() {
	query := url.Values{}
	query.Set("app name", "witness")
	query.Set("trustservercertificate", "true")
	query.Set("encrypt", "true")
	switch os.Getenv("TDS_ENCRYPT") {
	case "off":
		query.Set("encrypt", "false")
	case "strict":
		query.Set("encrypt", "strict")
		query.Set("certificate", os.Getenv("TDS_CERTIFICATE"))
		query.Set("hostnameincertificate", "localhost")
	}
	if name := os.Getenv("TDS_DATABASE"); name != "" {
		query.Set("database", name)
	}
	address := url.URL{
		Scheme:   "sqlserver",
		Host:     "127.0.0.1:" + os.Getenv("TDS_PORT"),
		User:     url.UserPassword(os.Getenv("TDS_USER"), os.Getenv("TDS_PASSWORD")),
		RawQuery: query.Encode(),
	}
	db, err := sql.Open("sqlserver", address.String())
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	connection, err := db.Conn(ctx)
	if err != nil {
		say(event{"refused": err.Error()})
		os.Exit(3)
	}
	if os.Getenv("MODE") == "parameters" {
		parameters(ctx, connection)
		return
	}
	var texts []string
	if err := json.NewDecoder(os.Stdin).Decode(&texts); err != nil {
		panic(err)
	}
	for i, text := range texts {
		running, cancel := context.WithCancel(ctx)
		first := func() {}
		if os.Getenv("MODE") == "cancel" && i == 0 {
			first = cancel
		}
		batch(running, connection, text, first)
		cancel()
		say(event{"ended": true})
	}
}
