"""One module for each kind of model. A function named like the model returns its `Case`."""
