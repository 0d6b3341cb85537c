"""Is a GPU kernel right, and how fast is it? A harness whose answer can be believed."""
