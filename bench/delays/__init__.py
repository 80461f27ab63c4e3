"""How delayed messages do: memory and recovery with millions that wait, and how late they come under load."""
