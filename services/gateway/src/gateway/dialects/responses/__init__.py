"""OpenAI's Responses API. A request becomes a chat completion, and the answer's events become output items."""
