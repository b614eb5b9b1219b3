-- Whether anything waits for a slot of a limit.
--
-- Bound: one look at an index. Locks: none.
CREATE OR REPLACE FUNCTION dx_is_limit_awaited(
  p_kind text, p_name text         -- as in dx_set_limit
) RETURNS boolean LANGUAGE plpgsql STABLE
-- settings of the caller
AS $$
BEGIN
  RETURN CASE p_kind
    WHEN 'activity' THEN EXISTS (
      SELECT FROM worker_queue AS w
      WHERE w.limit_name IS NOT NULL AND w.visible_at = 'infinity' AND w.limit_name = p_name
    )
    WHEN 'orchestration' THEN EXISTS (
      SELECT FROM instances AS i WHERE i.limit_route IS NOT NULL AND i.limit_name = p_name
    )
  END;
END
$$;
