"""MirrorMaker 2's record formats and internal topics, to the byte."""
