"""DuckDB behind a pipe: `{"sql": ..., "parameters": [...]}` a line, answered by the first row of the result, `[]` if it has
none, or `{"error": ...}`. With `"all": true` by all rows, each cell as text, and the seconds until they were there:
`{"seconds": ..., "rows": [[...], ...]}`. Ends with its input."""

import json
import sys
import time

import duckdb

connection = duckdb.connect(sys.argv[1], config={"threads": 1})
# Else it draws on the pipe while a statement takes long.
connection.execute("SET enable_progress_bar = false")


def first_row(request):
    result = connection.execute(request["sql"], request["parameters"])
    row = result.fetchone() if result.description else None
    return list(row) if row else []


def all_rows(request):
    started = time.perf_counter()
    rows = connection.execute(request["sql"], request["parameters"]).fetchall()
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "rows": [["" if cell is None else str(cell) for cell in row] for row in rows]}


for line in sys.stdin:
    request = json.loads(line)
    try:
        answer = all_rows(request) if request.get("all") else first_row(request)
    except duckdb.Error as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
