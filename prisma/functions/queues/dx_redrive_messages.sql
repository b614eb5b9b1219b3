-- Moves dead messages back into their queue, the oldest first: visible at once, with no delivery counted. Their
-- last_error stays.
--
-- Returns the number of messages. Bound: p_limit rows and those that other transactions hold. Locks: dead messages,
-- without waiting.
CREATE OR REPLACE FUNCTION dx_redrive_messages(p_queue text, p_limit integer, p_now_ms bigint DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql
-- settings of the hot path
AS $$
DECLARE
  v_now_ms bigint := COALESCE(p_now_ms, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  v_now timestamptz := to_timestamp(v_now_ms::float8 / 1000);
  v_ids bigint[];
  v_count bigint;
BEGIN
  SELECT array_agg(locked.id) INTO v_ids
  FROM (
    SELECT d.id FROM queue_dead AS d
    WHERE d.queue = p_queue
    ORDER BY d.died_at, d.id LIMIT p_limit FOR UPDATE SKIP LOCKED
  ) AS locked;

  WITH revived AS (DELETE FROM queue_dead AS d WHERE d.id = ANY (v_ids) RETURNING d.*)
  INSERT INTO queue_messages (id, queue, payload, created_at, visible_at, max_attempts, last_error)
  SELECT revived.id, revived.queue, revived.payload, revived.created_at, v_now, revived.max_attempts, revived.last_error
  FROM revived
  ORDER BY revived.id;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  IF v_count > 0 AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on' THEN
    PERFORM dx_hint('m ' || p_queue);
  END IF;
  RETURN v_count;
END
$$;
