"""Make the README's picture: the attention explorer of the demo's translator.

    make demo
    python docs/figures/readme_picture.py

opens the page that ``examples/translate.py explore`` writes in Chromium and takes a picture of it.
Beside the picture lies the hash of the files that determine what the page looks like, so that a
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
WIDTH, HEIGHT = 1180, 860
STEP = 8  # the decoding step of "night", which attends to 毎晩


def explorer_hash() -> str:
    """Hash the files of the explorer's page."""
    digest = hashlib.sha256()
    for file in sorted((ROOT / "src" / "transformer_blocks" / "explorer").glob("page.*")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


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
        window = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        window.goto(page.as_uri())
        for name in ("Dark", "Cross-attention"):
            window.get_by_text(name, exact=True).first.click()
        window.get_by_role("slider").first.fill(str(STEP))
        window.wait_for_timeout(500)
        window.screenshot(path=str(PICTURE))
        browser.close()
    record = {"sentence": SENTENCE, "explorer": explorer_hash()}
    RECORD.write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
