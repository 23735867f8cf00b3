"""What the pages share: store access, figures as text, cards, chart specifications and URL state."""
