"""The course of a deployed run, round by round: what is asked of whom and what comes of it.

`exchange.py` sends letters, admits answers and keeps the books; `asking.py` asks every silo, `buffered.py` takes whoever answers
first, `questions.py` asks once more within a round; `patience.py` knows how long is waited. What goes from one round to the next
and into the checkpoint: whom the coordinator doubts (`doubts.py`), who is at work on which round's models (`buffer.py`).
"""
