"""Compares Longshore with other tools that back up PostgreSQL clusters: machine, cluster, tools, rows, table."""
