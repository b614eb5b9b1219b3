-- Returns the statuses and names that instances have, unordered.
--
-- Bound: one index lookup for each of them, and one for each status. Locks: none.
CREATE OR REPLACE FUNCTION dx_groups_of_instances(
  p_statuses text[],
  p_name text                      -- only this one; null: any
) RETURNS TABLE (out_status text, out_name text) LANGUAGE sql STABLE
-- settings of the hot path
AS $$
  WITH RECURSIVE found AS (
    SELECT wanted.status, first.orchestration_name
    FROM unnest(p_statuses) AS wanted (status)
    CROSS JOIN LATERAL (
      SELECT i.orchestration_name FROM instances AS i
      WHERE i.status = wanted.status AND i.orchestration_name >= COALESCE(p_name, '')
      ORDER BY i.orchestration_name LIMIT 1
    ) AS first
    WHERE p_name IS NULL OR first.orchestration_name = p_name
    UNION ALL
    SELECT found.status, next.orchestration_name FROM found
    CROSS JOIN LATERAL (
      SELECT i.orchestration_name FROM instances AS i
      WHERE p_name IS NULL AND i.status = found.status AND i.orchestration_name > found.orchestration_name
      ORDER BY i.orchestration_name LIMIT 1
    ) AS next
  )
  SELECT found.status, found.orchestration_name FROM found
$$;
