"""Whether batches may follow the end of a log; for `log`, in C."""
