-- Purpose: creates the table in which an import of a SQLite file of Duroxide records its progress.
-- Effect on running workers: none; only imports use it.
CREATE TABLE sqlite_imports (
  fingerprint TEXT NOT NULL, -- SHA-256 of what the file contains
  file TEXT NOT NULL, -- without its folder
  on_conflict TEXT NOT NULL,
  served TEXT[] NOT NULL,
  started_at TIMESTAMPTZ NOT NULL,
  finished_at TIMESTAMPTZ,
  last_instance_id TEXT,
  kept TEXT[] NOT NULL,
  replaced INTEGER NOT NULL DEFAULT 0,
  counts JSONB NOT NULL,
  CONSTRAINT sqlite_imports_pkey PRIMARY KEY (fingerprint)
);
