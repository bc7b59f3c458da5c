"""What decides and delivers the views of every row, to any trainer."""
