-- Whether anything waits for a slot of a limit. A start that begins later does not count, unless 100 instances or more
-- are parked: reading further would cost each start too much.
--
-- Bound: one look at an index, of orchestrations at 100 entries. Locks: none.
CREATE OR REPLACE FUNCTION dx_is_limit_awaited(
  p_kind text, p_name text,        -- as in dx_set_limit
  p_now_ms bigint
) RETURNS boolean LANGUAGE plpgsql STABLE
-- settings of the caller
AS $$
BEGIN
  RETURN CASE p_kind
    WHEN 'activity' THEN EXISTS (
      SELECT FROM worker_queue AS w
      WHERE w.limit_name IS NOT NULL AND w.visible_at = 'infinity' AND w.limit_name = p_name
    )
    WHEN 'orchestration' THEN (
      SELECT count(*) = 100 OR COALESCE(bool_or(parked.place < dx_limit_place(p_now_ms + 1, 0)), false)
      FROM (
        SELECT COALESCE(i.limit_place, 0) AS place FROM instances AS i
        WHERE (i.status = 'Running') IS TRUE AND i.limit_route IS NOT NULL AND i.limit_name = p_name
        LIMIT 100
      ) AS parked
    )
  END;
END
$$;
