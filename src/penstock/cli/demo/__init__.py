"""`penstock demo`: a short tour with a broker of its own."""
