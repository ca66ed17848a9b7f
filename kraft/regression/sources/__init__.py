"""Results of other tools, converted to pytest-benchmark documents that `results` reads.

`conversion` detects the format of a file and calls the converter of its tool: `jmh`,
`google_benchmark`, `asv`, or `tables` for CSV and Parquet files with columns that the user names.
A converter returns one document per run (`documents.document`) and raises `BenchmarkFileError` for
a file that it cannot read. The CLI calls `conversion`; the store never sees another format.
"""
