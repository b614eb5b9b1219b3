-- Counts the slots of a limit that are in use: from the rows that have one.
--
-- Bound: p_most of them. Locks: none.
CREATE OR REPLACE FUNCTION dx_count_slots(
  p_kind text, p_name text,        -- as in dx_set_limit
  p_key text,                      -- null: of all keys
  p_most bigint                    -- counts no further; null: all
) RETURNS bigint LANGUAGE plpgsql STABLE
-- settings of the caller
AS $$
BEGIN
  RETURN CASE
    WHEN p_kind = 'activity' AND p_key IS NULL THEN (
      SELECT count(*)
      FROM (
        SELECT FROM worker_queue AS w
        WHERE w.limit_name IS NOT NULL AND w.visible_at < 'infinity' AND w.limit_name = p_name
        LIMIT p_most
      ) AS admitted
    )
    WHEN p_kind = 'activity' THEN (
      SELECT count(*)
      FROM (
        SELECT FROM worker_queue AS w
        WHERE w.limit_name IS NOT NULL
          AND w.visible_at < 'infinity'
          AND w.limit_name = p_name
          AND w.limit_key = p_key
        LIMIT p_most
      ) AS admitted
    )
    WHEN p_kind = 'orchestration' AND p_key IS NULL THEN (
      SELECT count(*)
      FROM (
        SELECT FROM instances AS i
        WHERE i.limit_route IS NULL AND (i.status = 'Running') IS TRUE AND i.limit_name = p_name
        LIMIT p_most
      ) AS admitted
    )
    WHEN p_kind = 'orchestration' THEN (
      SELECT count(*)
      FROM (
        SELECT FROM instances AS i
        WHERE i.limit_route IS NULL
          AND (i.status = 'Running') IS TRUE
          AND i.limit_name = p_name
          AND i.limit_key = p_key
        LIMIT p_most
      ) AS admitted
    )
  END;
END
$$;
