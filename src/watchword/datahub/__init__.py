"""Import from DataHub, and its REST addresses."""
