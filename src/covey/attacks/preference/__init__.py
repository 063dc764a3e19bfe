"""Which cluster a client belongs to: from the identity sets it shows, or from its model."""
