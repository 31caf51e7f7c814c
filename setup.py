"""What differs between README.md in the repository and on a package index.

All else about the package stands in pyproject.toml.
"""

import re
from pathlib import Path

from setuptools import setup

# The address of the repository, such as "https://host/owner/transformer_blocks", once it is public.
HOME = ""


def description(home: str) -> str:
    """Return README.md, whose relative links would lead nowhere on an index.

    They lead to the repository at `home`. Where that is not known, a link keeps its text alone, and
    a picture is left out.
    """
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")

    def absolute(link: re.Match[str]) -> str:
        picture, label, path = link.groups()
        if home:
            return f"{picture}[{label}]({home}/{'raw' if picture else 'blob'}/HEAD/{path})"
        return "" if picture else label

    return re.sub(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)", absolute, text)


if __name__ == "__main__":
    setup(
        long_description=description(HOME),
        long_description_content_type="text/markdown",
        project_urls={"Source": HOME, "Changelog": f"{HOME}/blob/HEAD/CHANGELOG.md"}
        if HOME
        else {},
    )
