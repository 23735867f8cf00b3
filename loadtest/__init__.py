"""Load tests of OpenAI-compatible endpoints: the client, its schedule, its statistics and its judgement of itself."""
