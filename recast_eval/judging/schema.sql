CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- A judge in one setting: card digest, model, endpoint, decoding. The latest of a name is its face.
CREATE TABLE IF NOT EXISTS specs (
  spec TEXT PRIMARY KEY, judge TEXT NOT NULL, card TEXT NOT NULL, model TEXT NOT NULL,
  base_url TEXT NOT NULL, members TEXT NOT NULL DEFAULT '[]', used REAL NOT NULL
) WITHOUT ROWID;

-- One question of one observation. `info` is what the record of the pair needs beside the replies.
CREATE TABLE IF NOT EXISTS asks (
  spec TEXT NOT NULL, prompt_id TEXT NOT NULL, sample INTEGER NOT NULL, model_a TEXT NOT NULL,
  model_b TEXT NOT NULL, repeat INTEGER NOT NULL, ordinal INTEGER NOT NULL, key TEXT,
  nonce TEXT, first TEXT NOT NULL, second TEXT NOT NULL, info TEXT NOT NULL,
  PRIMARY KEY (spec, prompt_id, sample, model_a, model_b, repeat, ordinal)
) WITHOUT ROWID;

-- Every call, retries too. state: ok, or why not. final = 0: it was tried again in the same run.
CREATE TABLE IF NOT EXISTS calls (
  id INTEGER PRIMARY KEY, key TEXT NOT NULL, run TEXT NOT NULL, at REAL NOT NULL,
  state TEXT NOT NULL, final INTEGER NOT NULL, detail TEXT NOT NULL, reply TEXT, finish TEXT,
  refusal TEXT, usage TEXT NOT NULL, mode TEXT NOT NULL, model TEXT NOT NULL, seconds REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS calls_key ON calls (key);

-- Who is asking what right now, so that processes that share the store pay once.
CREATE TABLE IF NOT EXISTS claims (
  key TEXT PRIMARY KEY, run TEXT NOT NULL, pid INTEGER NOT NULL, host TEXT NOT NULL,
  until REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS runs (
  run TEXT PRIMARY KEY, spec TEXT NOT NULL, pid INTEGER NOT NULL, host TEXT NOT NULL,
  started REAL NOT NULL, finished REAL, lost INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- A file under an image rule: what is sent for it, or what is wrong with it.
CREATE TABLE IF NOT EXISTS images (
  sha256 TEXT NOT NULL, rule TEXT NOT NULL, level INTEGER NOT NULL, sent TEXT NOT NULL,
  fits INTEGER NOT NULL, width INTEGER NOT NULL, height INTEGER NOT NULL,
  PRIMARY KEY (sha256, rule, level)
) WITHOUT ROWID;

-- Records that come from scores and not from replies (the offline jury).
CREATE TABLE IF NOT EXISTS fixed (
  judge TEXT NOT NULL, key TEXT NOT NULL, record TEXT NOT NULL, PRIMARY KEY (judge, key)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS batches (
  batch TEXT PRIMARY KEY, spec TEXT NOT NULL, file TEXT NOT NULL, submitted REAL NOT NULL,
  collected REAL
) WITHOUT ROWID;
