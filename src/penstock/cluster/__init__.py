"""The cluster as every broker sees it: the image, and the changes that brokers decide on it."""
