"""What a coordinator carries from one round to the next: whom it doubts (`doubts.py`), and where rounds are asynchronous who is at
work on which round's models (`buffer.py`). Both are part of its checkpoint; what they know of letters and silos is numbers.
"""
