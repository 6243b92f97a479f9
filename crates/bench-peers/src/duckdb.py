"""DuckDB behind a pipe: `{"sql": ..., "parameters": [...]}` a line, answered by the first row of the result, `[]` if it has
none, or `{"error": ...}`. Ends with its input."""

import json
import sys

import duckdb

connection = duckdb.connect(sys.argv[1], config={"threads": 1})
# Else it draws on the pipe while a statement takes long.
connection.execute("SET enable_progress_bar = false")
for line in sys.stdin:
    request = json.loads(line)
    try:
        result = connection.execute(request["sql"], request["parameters"])
        row = result.fetchone() if result.description else None
        answer = list(row) if row else []
    except duckdb.Error as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
