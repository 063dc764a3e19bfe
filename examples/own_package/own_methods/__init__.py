"""An algorithm, an attack and a defence for covey, each in one file that nothing else names."""
