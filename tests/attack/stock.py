"""Whole inputs: what the attack damages copies of, and what the program says of them undamaged."""
import os
import shutil
import subprocess
from pathlib import Path

TEXT = "the owl sees in the dark of a long night. " * 2


class Stock:
    def __init__(self, program, fixtures, folder):
        self.program, self.folder = program, folder
        self.whole = folder / "whole"
        self.whole.mkdir()
        self.text = self.whole / "text.txt"
        self.text.write_text(TEXT)
        self.checkpoints = {}
        for name in ("llama2", "llama3", "qwen2-sharded", "qwen3"):
            self.checkpoints[name] = self.whole / name
            shutil.copytree(fixtures / name / "model", self.checkpoints[name])
        self.ggufs = {}
        for dtype in ("f32", "q8_0"):
            self.ggufs[dtype] = self.whole / f"{dtype}.gguf"
            self.run("quantize", "-m", self.checkpoints["llama2"], "--type", dtype, "-o", self.ggufs[dtype])

    def run(self, *arguments, text="", state="state"):
        """An undamaged run, which has to succeed."""
        here = {"HOME": "home", "XDG_STATE_HOME": state, "XDG_CACHE_HOME": "cache"}
        result = subprocess.run([self.program, *map(str, arguments)], input=text.encode(), capture_output=True,
                                cwd=self.folder, check=False,
                                env={**os.environ, **{key: str(self.folder / value) for key, value in here.items()}})
        if result.returncode != 0:
            raise RuntimeError(f"tyto {' '.join(map(str, arguments))}: {result.stderr.decode(errors='replace')}")
        return result


def copy(source, folder, name=None):
    """A case's own copy, which it may damage."""
    target = Path(folder) / (name or Path(source).name)
    if Path(source).is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)
    return target
