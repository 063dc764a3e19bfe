"""What a run leaves behind: its result, its folder, and how both are read. No page is drawn here."""
