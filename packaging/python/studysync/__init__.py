"""The program `studysync`, installed by pip. `python -m studysync` runs it where the environment's `bin` is not on the PATH."""
