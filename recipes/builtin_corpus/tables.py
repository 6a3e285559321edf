"""The tables of the lexicon are text: one entry a line, continued on the next line where that begins with blanks."""

import re


def read_rows(table, separator=" | "):
    """Splits a table into its entries, each a list of cells.

    The separator has blanks around it, so that the "|" of a German separable verb is none. A line that ends with a
    comma goes on without a blank.
    """
    text = re.sub(r"\n +", " ", re.sub(r",\n +", ",", table.strip()))
    return [[cell.strip() for cell in line.split(separator)] for line in text.splitlines() if line]
