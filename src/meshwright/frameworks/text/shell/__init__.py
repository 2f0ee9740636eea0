"""Shell scripts read, not run: words, commands, variables, argument lists, launchers."""
