"""Taking over from a MirrorMaker 2 that ran before: where it stopped is proven, never guessed."""
