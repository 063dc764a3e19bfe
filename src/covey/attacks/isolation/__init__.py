"""Whether what a party is handed gives away what a single other client trained."""
