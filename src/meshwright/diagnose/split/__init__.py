"""Where the time of one rank went: steps, unions, attribution, idle owners, kernel classes."""
