"""The only place with SQL: row types, schema, writer, named queries, read API and its client."""
