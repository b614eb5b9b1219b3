-- Returns the first instances with an attribute that is equal to a value or in a range, created between two times and
-- behind a position, in the order of their creation; unordered where fewer than p_most_sorted are in the range.
--
-- An index has the instances with a value in their order. Those in a range are all returned while there are at most
-- p_most_sorted. Of a wider range, those are returned that have the attribute, whatever its value is: the caller
-- compares it, and continues behind the last one.
--
-- Bound: the rows returned, and those of instances that Duroxide has deleted; for a range also p_most_sorted. Locks:
-- none.
CREATE OR REPLACE FUNCTION dx_instances_of_attribute(
  p_name text,
  p_kind text,                     -- text, number or time. The values of a time are milliseconds since the Unix epoch
  p_equals text,                   -- null: a range
  p_from text, p_below text,       -- null: without this end
  p_created_from timestamptz, p_created_before timestamptz, -- null: any
  p_after_at timestamptz, p_after_id text, -- the position; null: the beginning
  p_newest boolean,                -- whether the order begins with the newest
  p_most_sorted bigint, p_limit bigint
) RETURNS SETOF instances LANGUAGE plpgsql STABLE
-- settings of the hot path
AS $$
DECLARE
  v_column CONSTANT text := 'a.' || p_kind || '_value';
  v_value CONSTANT text := CASE p_kind
    WHEN 'text' THEN '%s'
    WHEN 'number' THEN '%s::float8'
    WHEN 'time' THEN 'to_timestamp(%s::float8 / 1000)'
  END;
  -- Duroxide leaves the attributes of instances that it deletes; a later instance of the id was created later.
  v_of_name CONSTANT text := '
    SELECT i.*
    FROM attributes AS a
    CROSS JOIN LATERAL (
      SELECT i.* FROM instances AS i WHERE i.instance_id = a.instance_id AND i.created_at = a.created_at OFFSET 0
    ) AS i
    WHERE a.name = $1';
  v_bounds CONSTANT text := concat(
    CASE WHEN p_created_from IS NOT NULL THEN ' AND a.created_at >= $4' END,
    CASE WHEN p_created_before IS NOT NULL THEN ' AND a.created_at < $5' END,
    CASE
      WHEN p_after_id IS NULL THEN NULL
      WHEN p_newest THEN ' AND (a.created_at, a.instance_id) < ($6, $7)'
      ELSE ' AND (a.created_at, a.instance_id) > ($6, $7)'
    END
  );
  v_order CONSTANT text := CASE
    WHEN p_newest THEN ' ORDER BY a.created_at DESC, a.instance_id DESC LIMIT $8'
    ELSE ' ORDER BY a.created_at, a.instance_id LIMIT $8'
  END;
  v_in_range CONSTANT text := concat(
    ' AND ' || v_column || ' IS NOT NULL',
    CASE WHEN p_from IS NOT NULL THEN ' AND ' || v_column || ' >= ' || format(v_value, '$2') END,
    CASE WHEN p_below IS NOT NULL THEN ' AND ' || v_column || ' < ' || format(v_value, '$3') END
  );
  v_query text := v_of_name || ' AND ' || v_column || ' = ' || format(v_value, '$2') || v_bounds || v_order;
  v_count bigint;
BEGIN
  IF p_equals IS NULL THEN
    -- Without the bounds: all pages are read in the same way.
    EXECUTE format('SELECT count(*) FROM (SELECT FROM attributes AS a WHERE a.name = $1%s LIMIT $4) AS a', v_in_range)
    INTO v_count
    USING p_name, p_from, p_below, p_most_sorted + 1;
    v_query := v_of_name || CASE WHEN v_count <= p_most_sorted THEN v_in_range || v_bounds ELSE v_bounds || v_order END;
  END IF;
  RETURN QUERY EXECUTE v_query
  USING p_name, COALESCE(p_equals, p_from), p_below, p_created_from, p_created_before, p_after_at, p_after_id, p_limit;
END
$$;
