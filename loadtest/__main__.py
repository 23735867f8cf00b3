"""Temporary."""
import sys
from loadtest import worker
sys.exit(worker.main())
