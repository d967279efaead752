"""Longshore beside other tools that back up PostgreSQL clusters: machine, cluster, tools, rows, table."""
