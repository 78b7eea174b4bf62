"""The policy file and declared sets, as a list of parts that the rooms above give."""
