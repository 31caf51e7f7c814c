"""The corpus and the model of chapter 0, for the chapters that use them again."""

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

chapter = Path(__file__).with_name("00_map.py").read_text("utf-8")
before_training, _, _ = chapter.partition("\nmodel = Translator()")
with redirect_stdout(StringIO()):
    exec(before_training, globals())
