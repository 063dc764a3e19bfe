"""What advances clients: hosts in this process or in workers on this machine. The same client coroutines run
in all of them.
"""
