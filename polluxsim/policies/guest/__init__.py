"""Programs that others wrote, as policies: each runs in a process of its own, and sees views as values only.

The host (`host`) starts the process (`process`) and asks it for decisions through a pipe. It pickles what it sends
(`views`), and reads plain JSON (`answers`), because a pickle of a program could run code here. `source` reads a program
before it runs. `guards` limit what the process can do.

This guards against programs that cheat, not against malware.
"""
