"""One module per command. Each reads its settings and hands over to what does the work, imported only then."""
