"""Models behind any server that speaks the OpenAI API."""
