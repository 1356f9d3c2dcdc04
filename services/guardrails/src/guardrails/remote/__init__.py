"""The detector API: detectors of other servers for us (`config`, `detector`), ours for others (`server`)."""
