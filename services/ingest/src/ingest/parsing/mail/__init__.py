"""Shared code of the mail formats: headers, the text of a body, attachments."""
