"""Run folders in; tables, figures, one page and the ledger of results out. Reports read files only."""
