"""How operators carry rows, one module an operator family; `registry` brings them together."""
