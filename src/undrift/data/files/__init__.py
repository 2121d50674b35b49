"""Files of data sets: fetching and reading them."""
