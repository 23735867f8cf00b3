"""What-if memory calculator: model facts x engine settings x devices -> memory plan, with its reasons. Pure."""
