"""Integrations of single libraries; import the module of that library."""
