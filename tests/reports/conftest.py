"""Makes the modules of this folder importable, as they are for the script run.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
