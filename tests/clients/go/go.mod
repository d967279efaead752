module longshore/clients

go 1.24

require (
	github.com/golang-sql/sqlexp v0.1.0
	github.com/microsoft/go-mssqldb v1.9.3
)

require (
	github.com/golang-sql/civil v0.0.0-20220223132316-b832511892a9 // indirect
	github.com/google/uuid v1.6.0 // indirect
	golang.org/x/crypto v0.38.0 // indirect
	golang.org/x/text v0.25.0 // indirect
)
