"""Pages: build a site with Sphinx, in which each warning is an error.

    python docs/_ext/pages.py SOURCE OUTPUT

takes the options of ``sphinx-build``, too. ``python -m sphinx`` would fail if the environment names
a locale that the machine does not have, which is usual over ssh. No page depends on the locale.
All pages are made anew (-E), since they show code, figures and translations from other files.
"""

import sys

from sphinx.cmd.build import build_main

if __name__ == "__main__":
    sys.exit(build_main(["-q", "-W", "--keep-going", "-E", "-b", "html", *sys.argv[1:]]))
