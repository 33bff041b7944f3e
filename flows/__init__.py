"""The Prefect flows of Larder: one per file."""

import sys

if sys.version_info < (3, 11):  # flows import names that older versions lack
    print("error[config.missing_package]: flows need Python 3.11 or newer", file=sys.stderr)
    sys.exit(2)
