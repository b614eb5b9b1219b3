-- Returns a page of the events of one execution, by event id.
--
-- The page has the events after p_after, about p_max_bytes of them but at least one if there is any; no rows if the
-- execution is unknown. Every row of the last page has out_is_last.
--
-- Bound: looks at the events after p_after, and reads those of the page. Locks: none.
CREATE OR REPLACE FUNCTION dx_read_history(
  p_instance_id text,
  p_execution_id bigint,           -- null means the highest execution
  p_after bigint,                  -- event id; 0: from the beginning
  p_max_bytes bigint
) RETURNS TABLE (out_execution_id bigint, out_event_id bigint, out_event_data text, out_is_last boolean)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET jit = off
AS $$
  SELECT page.execution_id, page.event_id, page.event_data, page.is_last
  FROM (
    SELECT sized.*, max(sized.before) OVER () < p_max_bytes AS is_last
    FROM (
      SELECT
        h.execution_id, h.event_id, h.event_data,
        sum(octet_length(h.event_data)) OVER (ORDER BY h.event_id) - octet_length(h.event_data) AS before
      FROM history AS h
      WHERE h.instance_id = p_instance_id
        AND h.execution_id = COALESCE(
          p_execution_id, (SELECT max(e.execution_id) FROM executions AS e WHERE e.instance_id = p_instance_id), 1
        )
        AND h.event_id > p_after
    ) AS sized
  ) AS page
  WHERE page.before < p_max_bytes
  ORDER BY page.event_id
$$;
