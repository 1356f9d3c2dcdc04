"""OpenAI's Responses API: a request becomes a chat, and the events of its answer become output items."""
