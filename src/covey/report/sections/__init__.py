"""The sections of a run's page, one file each: every one takes the run as read from its folder."""
