"""Documents from URLs: `addresses` says where nobody may be sent, `fetcher` gets what is elsewhere."""
