from run_folders import curve, write_run

__all__ = ["curve", "write_run"]
