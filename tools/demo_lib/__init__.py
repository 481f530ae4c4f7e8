"""What tools/demo does once everything is built: prepares inputs, runs lowtide on them, shows the results."""
