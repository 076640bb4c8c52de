"""What results of the scripts in this folder say about where they were made."""
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def numbers(text):
    return [int(part) for part in text.split(",") if part]


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def commit():
    result = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True)
    return result.stdout.strip() or "unknown"


def recorded(command, model):
    """The command without the folders of this machine."""
    return " ".join(Path(part).name if part in (command[0], model) else part for part in command)
