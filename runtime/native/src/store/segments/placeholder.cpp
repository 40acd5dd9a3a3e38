// Becomes the library's first source.
