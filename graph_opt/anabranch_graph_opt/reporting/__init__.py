"""What became of a model, told to its modeller: as a document, as text, and as a page."""
