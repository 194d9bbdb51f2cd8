-- A log's entries may be large, and SQLite reads an index's whole entry to compare it: they lie by row, and the index holds the key alone.
{log_entries_by_row}
