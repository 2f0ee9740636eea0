"""How tokens reach the experts of other ranks and come back."""
