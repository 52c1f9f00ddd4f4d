"""What the example's agent works with: tools that read a text file and write a report about it."""
