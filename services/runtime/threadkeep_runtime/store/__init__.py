"""The runtime's statements, by aggregate: plain functions of a synchronous connection. They decide nothing."""
