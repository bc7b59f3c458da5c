"""Hard View Selection: of several views of a row, those with the highest loss."""
