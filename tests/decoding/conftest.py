"""Lets the tests of this directory share `plain_search`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
