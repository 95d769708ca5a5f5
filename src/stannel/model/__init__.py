"""The nouns of the engine: frozen structs and pure functions over them."""
