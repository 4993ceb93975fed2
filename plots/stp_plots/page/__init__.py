"""What is shown: report.html, pages of docs, the screen; their tables."""
