-- Adds events outside a turn, for tools and tests: needs no lock and writes no other table.
--
-- Returns the number of events. Raises DX002 if one of the ids exists already or is given twice; then nothing is
-- written.
-- Bound: the rows given. Locks: none, but waits for a concurrent writer of the same event id.
CREATE OR REPLACE FUNCTION dx_append_history(
  p_instance_id text, p_execution_id bigint,
  p_history jsonb,                 -- [{event_id, event_type, event_data or text_at}]
  p_texts text[] DEFAULT NULL,     -- as in dx_store_turns
  p_now_ms bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_count bigint;
BEGIN
  INSERT INTO history (instance_id, execution_id, event_id, event_type, event_data, created_at)
  SELECT
    p_instance_id, p_execution_id, h.event_id, h.event_type, COALESCE(h.event_data, p_texts[h.text_at]),
    to_timestamp(v_now_ms::float8 / 1000)
  FROM jsonb_to_recordset(p_history) AS h (event_id bigint, event_type text, event_data text, text_at integer)
  ORDER BY h.event_id;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
EXCEPTION
  WHEN unique_violation THEN
    RAISE EXCEPTION 'an event id is taken'
      USING ERRCODE = 'DX002',
        DETAIL = json_build_object('instanceId', p_instance_id, 'executionId', p_execution_id)::text;
END
$$;
