"""The pictures of the page: arrays in, a `Drawing` out, for one theme and one of two widths."""
