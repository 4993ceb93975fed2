"""Result folders, records and other files of ours in memory."""
