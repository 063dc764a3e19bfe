"""The field: every algorithm in every setting, tuned by one rule; `covey reproduce field`. Leaderboard: docs/field.md."""
