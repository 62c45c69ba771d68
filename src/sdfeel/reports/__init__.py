"""The reports room: figures, tables and pages from the records of runs. It never trains."""
