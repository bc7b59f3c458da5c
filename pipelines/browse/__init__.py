"""Stage `browse`: one HTML file in which a person looks through pairs, filters them and sees their pixels."""

WRITES = {"browse": "browse"}
