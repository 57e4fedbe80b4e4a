"""Changes one byte of one event's body in a COPY of a lane's database, as somebody could who can write the file.

    flip_byte.py LANE.DB SEQ FROM TO

FROM and TO differ in one byte, and FROM stands in the body of event SEQ. SQLite is not asked to write: the byte is
changed in the file, so that no checksum and no trigger hears of it. Prints what was changed as JSON.
"""

import contextlib
import json
import sqlite3
import sys


def body(path, seq):
    # Immutable: the copy is read as it lies there, without its write-ahead log.
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        row = database.execute("SELECT body FROM events WHERE seq = ?", (seq,)).fetchone()
    if row is None or row[0] is None:
        sys.exit(f"{path}: event {seq} has no body")
    return bytes(row[0])


def places(text, part):
    place = text.find(part)
    while place >= 0:
        yield place
        place = text.find(part, place + 1)


def main(path, seq, old, new):
    old, new = old.encode(), new.encode()
    differing = [index for index, pair in enumerate(zip(old, new)) if pair[0] != pair[1]]
    if len(old) != len(new) or len(differing) != 1:
        sys.exit("FROM and TO must differ in exactly one byte")
    before = body(path, seq)
    within = before.find(old)
    if within < 0:
        sys.exit(f"the body of event {seq} does not hold FROM")
    with open(path, "r+b") as file:
        # A page that was rewritten may have left the same bytes behind: the right place is the one that SQLite reads.
        for start in list(places(file.read(), before)):
            offset = start + within + differing[0]
            file.seek(offset)
            file.write(new[differing[0] :][:1])
            file.flush()
            if body(path, seq) != before:
                return {"seq": seq, "offset": offset, "from": chr(old[differing[0]]), "to": chr(new[differing[0]])}
            file.seek(offset)
            file.write(old[differing[0] :][:1])
            file.flush()
    sys.exit(f"the body of event {seq} does not lie in one piece in {path}")


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])))
