"""Pure values, transitions and decisions of the runtime. Imports the standard library and the chassis' errors only."""
