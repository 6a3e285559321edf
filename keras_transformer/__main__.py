"""The command line: `keras-transformer COMMAND ...`, also `python -m keras_transformer COMMAND ...`.

Exit status: 2 if the command line cannot be parsed, 130 after Ctrl-C, 141 if whoever reads the output has left; else
what the command says, see `keras_transformer.commands`.
"""

import os
import sys

import tyro

import keras_transformer
from keras_transformer.commands import INTERRUPTED, PROGRAM
from keras_transformer.commands.serve import Serve
from keras_transformer.commands.translate import Translate

# What a shell makes of SIGPIPE.
_NO_READER = 141


def main(arguments: list[str] | None = None) -> None:
    """Run the command line.

    Args:
        arguments: list of strings. Defaults to those of the process.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if "--version" in arguments:
        print(f"{PROGRAM} {keras_transformer.__version__}")
        return
    command = tyro.extras.subcommand_cli_from_dict(
        {"translate": Translate, "serve": Serve},
        prog=PROGRAM,
        description="Translate with Transformers that keras_transformer has trained, and serve them. "
        "--version tells the version.",
        args=arguments,
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    try:
        command()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # What is left in the buffer has no reader, and Python would complain when it tries once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_NO_READER)


if __name__ == "__main__":
    main()
