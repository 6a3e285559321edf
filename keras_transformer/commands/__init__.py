"""The commands of the command line, a module each, and what they share.

A command is a dataclass, whose fields are its options and whose call runs it.
"""

from typing import Annotated

import tyro

PROGRAM = "keras-transformer"
# An option left out is `None`, so that its default has one home: the class it is passed to.
Integer = Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")]
Float = Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="")]
Text = Annotated[str | None, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")]
# What a shell makes of SIGINT.
INTERRUPTED = 130


def option_name(name):
    """Return the option of that field."""
    return "--" + name.replace("_", "-")
