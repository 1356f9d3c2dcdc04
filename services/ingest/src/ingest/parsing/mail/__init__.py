"""What the formats of mails share: headers, the text of a body, attachments."""
