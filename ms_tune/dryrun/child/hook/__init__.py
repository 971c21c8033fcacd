"""What runs inside every Python process of a simulated program, the user's own code around it.

``startup`` is put on the ``PYTHONPATH``; Python imports ``sitecustomize`` from there, which loads these modules. They use
the standard library alone, since the program's Python may be another one than ms-tune's, and touch MindSpore only when
the program has imported it.
"""
