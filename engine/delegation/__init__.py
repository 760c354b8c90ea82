"""Sub-workflows as tools (contract 04): checks, child calls, answers, recovery. Who runs the children is a driver's."""
