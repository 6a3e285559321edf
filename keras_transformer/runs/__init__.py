"""One training run on disk: what it writes, how it resumes, who owns it."""
