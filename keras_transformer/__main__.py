"""The command line: `keras-transformer COMMAND ...`, also `python -m keras_transformer COMMAND ...`.

Exit status: 2 if the command line cannot be parsed, 130 after Ctrl-C, 141 if whoever reads the output has left; else
what the command says, see `keras_transformer.commands`.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # read at import; twice the speed where it is not the default

import tyro

from keras_transformer.commands import INTERRUPTED, PROGRAM
from keras_transformer.commands.serve import Serve
from keras_transformer.commands.translate import Translate

# What a shell makes of SIGPIPE.
_NO_READER = 141


def main(arguments=None):
    """Run the command line.

    Args:
        arguments: list of strings. Defaults to those of the process.
    """
    command = tyro.extras.subcommand_cli_from_dict(
        {"translate": Translate, "serve": Serve},
        prog=PROGRAM,
        description="Translate with Transformers that keras_transformer has trained, and serve them.",
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
