"""The dialect of TokenSpeed."""
