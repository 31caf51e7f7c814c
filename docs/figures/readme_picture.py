"""Make the README's picture: the attention explorer of the demo's translator.

    make demo
    python docs/figures/pictures.py explorer

opens the page that ``examples/translate.py explore`` writes in Chromium, answers its first
question, and saves what the screen shows.
Beside the picture lies a record of the files that determine what the page looks like, so that a
test can report a picture that is out of date.
"""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "images" / "explorer.png"
RECORD = PICTURE.with_suffix(".json")
RUN = ROOT / "runs" / "demo"
SENTENCE = "毎晩、この犬は公園で走りますか。"
ANSWER = "犬は"  # to the first question: the word that the network looked at to write "dog"


def sources() -> dict[str, str]:
    """Hash the files that determine the picture: those of the explorer's page, and this one."""
    explorer = ROOT / "src" / "transformer_blocks" / "explorer"
    files = [file for file in explorer.rglob("*") if file.suffix in (".html", ".css", ".js")]
    files += [explorer / name for name in ("page.py", "style.py", "tokens.py")]
    files += [ROOT / "examples" / "translation" / f"{name}.py" for name in ("exploring", "glosses")]
    files += [Path(__file__)]
    return {str(file.relative_to(ROOT).as_posix()): hash_of(file) for file in sorted(files)}


def hash_of(file: Path) -> str:
    """Hash the content of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def difference() -> str:
    """Name the files that have changed since the picture was taken; empty if none has."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    if record["picture"] != hash_of(PICTURE):
        return "another picture than the record's"
    found = sources()
    changed = {file for file, _ in found.items() ^ record["sources"].items()}
    return f"changed: {', '.join(sorted(changed))}" if changed else ""


def write_record() -> None:
    """Record the files that determine the picture, and the picture itself."""
    record = {"sentence": SENTENCE, "picture": hash_of(PICTURE), "sources": sources()}
    RECORD.write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Write the page of the sentence, and take its picture."""
    from playwright.sync_api import sync_playwright

    translate = [sys.executable, str(ROOT / "examples" / "translate.py")]
    options = ["--run", str(RUN), "--sentence", SENTENCE]
    subprocess.run([*translate, "explore", *options], check=True, cwd=ROOT)
    (page,) = sorted(RUN.glob("*.html"), key=lambda path: path.stat().st_mtime)[-1:]
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        window = browser.new_page(
            viewport={"width": 960, "height": 520}, device_scale_factor=2, reduced_motion="reduce"
        )
        window.goto(page.as_uri())
        window.wait_for_selector("html[data-ready]")
        window.click(f"#story-keys button:has-text('{ANSWER}')")
        window.hover("h1")
        window.screenshot(path=PICTURE)
        browser.close()
    write_record()


if __name__ == "__main__":
    main()
