-- An approval of a terminal ends with the session in which it was given.
ALTER TABLE devices RENAME COLUMN bearer_id TO session_id;
