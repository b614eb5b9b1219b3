-- Returns what keeps dead rows the longest in this database, and how many dead rows the queues and instance_locks have
-- by their statistics; no row when nothing does. Vacuum can remove no row that died after out_xid.
--
-- A transaction keeps dead rows from its first snapshot or write on, so does a prepared one. A replication slot, and a
-- standby with hot_standby_feedback, keep what a query of the standby may read.
--
-- Bound: one pass over the sessions, prepared transactions and slots of the server. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_horizon() RETURNS TABLE (
  out_kind text,                   -- transaction, prepared transaction, replication slot, standby
  out_id text,                     -- process id, name of the prepared transaction or of the slot
  out_application_name text,       -- null without one
  out_since timestamptz,           -- its beginning; null for a slot or a standby, or without the right to see it
  out_transactions integer,        -- that began after it
  out_dead_rows bigint
) LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET jit = off
AS $$
  SELECT
    holder.kind, holder.id, holder.application_name, holder.since, holder.transactions,
    (
      SELECT sum(pg_stat_get_dead_tuples(kept.name::regclass))::bigint
      FROM (VALUES ('orchestrator_queue'), ('worker_queue'), ('instance_locks')) AS kept (name)
    )
  FROM (
    SELECT
      CASE WHEN a.backend_type = 'walsender' THEN 'standby' ELSE 'transaction' END AS kind, a.pid::text AS id,
      NULLIF(a.application_name, '') AS application_name, a.xact_start AS since,
      greatest(age(a.backend_xid), age(a.backend_xmin)) AS transactions
    FROM pg_stat_activity AS a
    WHERE a.pid <> pg_backend_pid()
      AND COALESCE(a.datname, current_database()) = current_database()
      -- Vacuum does not keep rows for itself, and its launcher, which belongs to no database, for a moment only.
      AND COALESCE(a.backend_type, '') NOT IN ('autovacuum worker', 'autovacuum launcher')
    UNION ALL
    SELECT 'prepared transaction', p.gid, NULL, p.prepared, age(p.transaction)
    FROM pg_prepared_xacts AS p WHERE p.database = current_database()
    UNION ALL
    SELECT 'replication slot', s.slot_name, NULL, NULL, age(s.xmin) FROM pg_replication_slots AS s
  ) AS holder
  WHERE holder.transactions IS NOT NULL
  ORDER BY holder.transactions DESC, holder.since LIMIT 1
$$;
