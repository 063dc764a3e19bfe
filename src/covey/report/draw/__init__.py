"""Pictures as SVG, and the markup around them. Nothing here knows what a run is."""
