"""`heliograph doctor`: facts are gathered, pure checks judge them. Nothing is changed."""
