"""What advances clients: hosts in this process, in processes of this machine (`simulate`) or in Ray workers (`ray`). The same
client coroutines run in all of them.
"""
