# Generated. Change asynchronous/__init__.py, then run: make reference
