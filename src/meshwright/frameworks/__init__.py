"""Other people's configurations, read and written."""
