"""labels_test.py BUILD_DIR CTEST: every CTest test has one of the three labels, and a timeout."""

import json
import subprocess
import sys

listing = subprocess.run(
    [sys.argv[2], "--test-dir", sys.argv[1], "--show-only=json-v1"],
    check=True, capture_output=True, text=True).stdout
tests = json.loads(listing)["tests"]
problems = []
for test in tests:
    properties = {p["name"]: p["value"] for p in test.get("properties", [])}
    labels = properties.get("LABELS", [])
    if len(labels) != 1 or labels[0] not in ("fast", "ranks", "process"):
        problems.append(f"{test['name']}: labels {labels}, expected one of fast, ranks, process")
    if not 0 < properties.get("TIMEOUT", 0) <= 1200:
        problems.append(f"{test['name']}: timeout {properties.get('TIMEOUT')}, expected 1 to 1200 s")
print("\n".join(problems) or f"{len(tests)} tests have a label and a timeout")
sys.exit(1 if problems or not tests else 0)
