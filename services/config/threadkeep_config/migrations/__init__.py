"""How the schema came to be: frozen history, forward only."""
