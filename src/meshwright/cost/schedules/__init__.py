"""Pipeline schedules: operation lists, exact simulation, closed forms."""
