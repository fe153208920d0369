#!/bin/bash
# run_docs.sh REIN: the commands, C blocks and links of README.md and docs/ (docs.py). Ends with 'N passed, N failed'.
exec python3 "$(dirname "$0")/docs.py" "$@"
