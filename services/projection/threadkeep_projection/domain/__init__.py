"""What a thread's events mean for its messages and summaries: pure functions over plain values."""
