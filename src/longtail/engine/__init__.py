"""Training: the loop, its waist to other processes, its record, and what is done with finished runs."""
